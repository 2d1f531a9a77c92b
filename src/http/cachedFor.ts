import { Duration, Effect } from "effect"

/**
 * Runs an effect once for all who ask at the same time, and keeps its result for a number of milliseconds, whatever
 * happens to the system's clock.
 */
export const cachedFor =
  (milliseconds: number) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) => {
    let expires = 0
    const timed = Effect.suspend(() => {
      expires = Number.POSITIVE_INFINITY
      return Effect.ensuring(
        effect,
        Effect.sync(() => (expires = performance.now() + milliseconds))
      )
    })
    return Effect.map(Effect.cachedInvalidateWithTTL(timed, Duration.infinity), ([cached, invalidate]) =>
      Effect.suspend(() => (performance.now() < expires ? cached : Effect.andThen(invalidate, cached)))
    )
  }
