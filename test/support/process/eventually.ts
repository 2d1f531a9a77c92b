import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"

/** Polls in real time, whatever the test's clock says, until the condition holds; fails after 60 seconds. */
export const eventually = <E, R>(what: string, condition: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  Effect.gen(function* () {
    for (const giveUp = performance.now() + 60_000; !(yield* condition);) {
      if (performance.now() > giveUp) return yield* Effect.die(new Error(`never: ${what}`))
      yield* Effect.promise((signal) => setTimeout(10, undefined, { signal }))
    }
  })
