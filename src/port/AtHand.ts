import { Cause, Effect, Exit, Option } from "effect"

/** The exit of an effect, if that is all it is. */
export const exitOf = <A, E, R>(effect: Effect.Effect<A, E, R>): Exit.Exit<A, E> | undefined =>
  Exit.isExit(effect) ? (effect as Exit.Exit<A, E>) : undefined

/** What is thrown is a defect, as in an effect. */
const attempt = <A, E, R>(next: () => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  try {
    return next()
  } catch (defect) {
    return Effect.die(defect)
  }
}

/**
 * Effect's combinators for what is mostly at hand: given an exit, they go on at once and need no fiber. What they are given
 * has acted by then, so they stand behind an effect that is suspended, or in a function that acts when it is called.
 */
export const flatMap = <A, E, R, B, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  next: (value: A) => Effect.Effect<B, E2, R2>
): Effect.Effect<B, E | E2, R | R2> => {
  const exit = exitOf(effect)
  if (exit === undefined) return Effect.flatMap(effect, next)
  return Exit.isSuccess(exit) ? attempt(() => next(exit.value)) : Effect.failCause(exit.cause)
}

export const map = <A, E, R, B>(effect: Effect.Effect<A, E, R>, change: (value: A) => B): Effect.Effect<B, E, R> => {
  const exit = exitOf(effect)
  if (exit === undefined) return Effect.map(effect, change)
  return Exit.isSuccess(exit) ? attempt(() => Effect.succeed(change(exit.value))) : Effect.failCause(exit.cause)
}

export const catchCause = <A, E, R, B, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  recover: (cause: Cause.Cause<E>) => Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E2, R | R2> => {
  const exit = exitOf(effect)
  if (exit === undefined) return Effect.catchCause(effect, recover)
  return Exit.isSuccess(exit) ? Effect.succeed(exit.value) : attempt(() => recover(exit.cause))
}

export const catchError = <A, E, R, B, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  recover: (error: E) => Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E2, R | R2> =>
  catchCause(effect, (cause) =>
    Option.match(Cause.findErrorOption(cause), {
      onNone: () => Effect.failCause(cause as Cause.Cause<never>),
      onSome: recover
    })
  )

export const mapError = <A, E, R, E2>(
  effect: Effect.Effect<A, E, R>,
  change: (error: E) => E2
): Effect.Effect<A, E2, R> => catchError(effect, (error) => Effect.fail(change(error)))

export const onExit = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  ended: (exit: Exit.Exit<A, E>) => void
): Effect.Effect<A, E, R> => {
  const exit = exitOf(effect)
  if (exit === undefined) return Effect.onExit(effect, (exit) => Effect.sync(() => ended(exit)))
  ended(exit)
  return exit
}

export const interruptible = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  exitOf(effect) ?? Effect.interruptible(effect)

export const uninterruptible = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  exitOf(effect) ?? Effect.uninterruptible(effect)

export const all = <A, E, R>(effects: ReadonlyArray<Effect.Effect<A, E, R>>): Effect.Effect<ReadonlyArray<A>, E, R> => {
  const values: Array<A> = []
  for (const effect of effects) {
    const exit = exitOf(effect)
    if (exit?._tag !== "Success") return Effect.all(effects)
    values.push(exit.value)
  }
  return Effect.succeed(values)
}
