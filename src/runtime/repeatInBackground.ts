import { type Duration, Effect, References } from "effect"

/** Repeats untraced work until the scope ends. Logs only the first of consecutive failures: `failure` and its cause. */
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
