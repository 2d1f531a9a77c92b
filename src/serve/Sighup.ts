import { Effect, Queue } from "effect"

/** An element when SIGHUP has come since one was last taken. */
export const hangUps = Effect.gen(function* () {
  const queue = yield* Queue.sliding<true>(1)
  const tell = () => void Queue.offerUnsafe(queue, true)
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("SIGHUP", tell)),
    () => Effect.sync(() => process.off("SIGHUP", tell))
  )
  return queue
})
