import { Effect, Queue } from "effect"

/** Holds an element if SIGHUP arrived since the last take. */
export const sighups = Effect.gen(function* () {
  const queue = yield* Queue.sliding<true>(1)
  const offer = () => void Queue.offerUnsafe(queue, true)
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("SIGHUP", offer)),
    () => Effect.sync(() => process.off("SIGHUP", offer))
  )
  return queue
})
