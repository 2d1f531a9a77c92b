import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"

/** Polls in real time, even under a test clock, until the value suits or is true; fails after 60 seconds. */
export const eventually = <A, E = never, R = never>(
  what: string,
  look: Effect.Effect<A, E, R> | (() => A),
  suits: (found: A) => boolean = Boolean
): Effect.Effect<void, E, R> =>
  Effect.gen(function* () {
    const found = Effect.isEffect(look) ? look : Effect.sync(look)
    for (const giveUp = performance.now() + 60_000; !suits(yield* found);) {
      if (performance.now() > giveUp) return yield* Effect.die(new Error(`never: ${what}`))
      yield* Effect.promise((signal) => setTimeout(10, undefined, { signal }))
    }
  })
