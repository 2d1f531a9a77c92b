import { Effect } from "effect"

/** Runs an effect over and over, so many at a time, and answers how often within those milliseconds. */
export const repeatedly = Effect.fnUntraced(function* <E, R>(
  milliseconds: number,
  concurrency: number,
  one: Effect.Effect<unknown, E, R>
) {
  const until = performance.now() + milliseconds
  let done = 0
  const worker = Effect.whileLoop({
    while: () => performance.now() < until,
    body: () => one,
    step: () => void (done += 1)
  })
  yield* Effect.all(
    Array.from({ length: concurrency }, () => worker),
    { concurrency: "unbounded", discard: true }
  )
  return done
})
