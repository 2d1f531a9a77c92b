import { type Duration, Effect, References } from "effect"

/** Repeats work until the scope ends, untraced. Of failures in a row, logs only the first: `failure` and the cause. */
export const repeatInBackground = <A, E, R>(every: Duration.Input, work: Effect.Effect<A, E, R>, failure: string) => {
  let isFailing = false
  const attempt = Effect.matchCauseEffect(work, {
    onSuccess: () => Effect.sync(() => void (isFailing = false)),
    onFailure: (cause) => {
      const isFirst = !isFailing
      isFailing = true
      return isFirst ? Effect.logWarning(failure, cause) : Effect.void
    }
  })
  const repeated = Effect.forever(Effect.andThen(Effect.sleep(every), attempt))
  return Effect.forkScoped(Effect.provideService(repeated, References.TracerEnabled, false))
}
