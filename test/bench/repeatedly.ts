import { Effect } from "effect"

/** Runs an effect. Returns its result, its duration, and the CPU time of this process meanwhile, in seconds. */
export const timed = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>) {
  const [began, before] = [performance.now(), process.cpuUsage()]
  const result = yield* effect
  const { system, user } = process.cpuUsage(before)
  return { result, seconds: (performance.now() - began) / 1000, cpu: (system + user) / 1e6 }
})

/** Repeats an effect, several at a time, for some milliseconds. Returns how often it ran. */
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
