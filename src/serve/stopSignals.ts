import { Effect } from "effect"

/** Calls `heard` with the number of each signal that asks the process to stop, before anything else hears of it. */
export const stopSignals = (heard: (count: number) => void) => {
  let count = 0
  const listener = () => heard((count += 1))
  return Effect.acquireRelease(
    Effect.sync(() => process.prependListener("SIGTERM", listener).prependListener("SIGINT", listener)),
    () => Effect.sync(() => process.off("SIGTERM", listener).off("SIGINT", listener))
  )
}
