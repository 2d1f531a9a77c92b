import { Cause, Effect, Effectable, Exit, type Fiber, Option } from "effect"
import { CurrentDeadline, type Deadline } from "./Deadline.ts"

/** Who waits: by when, and in which fiber if it is one. */
interface Waiter {
  readonly deadline: Deadline | undefined
  readonly fiber: Fiber.Fiber<unknown, unknown> | undefined
}

/**
 * Begins something that ends in a callback. `resume` is called once, perhaps at once, with the exit or with what to go on with.
 * Returns what leaves without it, which does nothing once it has resumed.
 */
type Begin<A, E, R> = (by: Waiter, resume: (result: Effect.Effect<A, E, R>) => void) => () => void

/** An effect that waits for a callback, for which it needs no fiber. */
class Coming<A, E, R> extends Effectable.Class<A, E, R> {
  readonly begin: Begin<A, E, R>
  readonly isInterruptible: boolean

  constructor(begin: Begin<A, E, R>, isInterruptible = false) {
    super()
    this.begin = begin
    this.isInterruptible = isInterruptible
  }

  asEffect(): Effect.Effect<A, E, R> {
    return Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
        const leave = this.begin({ deadline: fiber.getRef(CurrentDeadline), fiber }, resume)
        return Effect.sync(leave)
      })
    )
  }
}

/** An effect that waits for what `begin` begins each time it is run. */
export const coming = <A, E = never, R = never>(begin: Begin<A, E, R>): Effect.Effect<A, E, R> => new Coming(begin)

const comingOf = <A, E, R>(effect: Effect.Effect<A, E, R>): Coming<A, E, R> | undefined =>
  effect instanceof Coming ? (effect as Coming<A, E, R>) : undefined

/** Goes on with what a coming effect resumes with. */
const thenWith = <A, E, R, B, E2, R2>(
  { begin, isInterruptible }: Coming<A, E, R>,
  next: (result: Effect.Effect<A, E, R>) => Effect.Effect<B, E2, R2>
): Effect.Effect<B, E2, R2> => new Coming((by, resume) => begin(by, (result) => resume(next(result))), isInterruptible)

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

const nothing = () => {}

/** Begins what `next` returns each time it is run. */
export const suspend = <A, E, R>(next: () => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  new Coming((by, resume) => {
    const effect = attempt(next)
    const coming = comingOf(effect)
    if (coming !== undefined) return coming.begin(by, resume)
    resume(effect)
    return nothing
  })

/**
 * Follows an effect to its exit, and forks it only from where it needs a fiber. Returns what interrupts it: then nobody is told
 * of its end, unless it was forked.
 */
export const run = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  deadline: Deadline,
  fork: (effect: Effect.Effect<A, E, R>) => Fiber.Fiber<A, E>,
  ended: (exit: Exit.Exit<A, E>) => void
): (() => void) => {
  let interrupt = nothing
  const follow = (next: Effect.Effect<A, E, R>): void => {
    const exit = exitOf(next)
    if (exit !== undefined) return ended(exit)
    const coming = comingOf(next)
    if (coming === undefined) {
      const fiber = fork(next)
      interrupt = () => fiber.interruptUnsafe()
      return void fiber.addObserver(ended)
    }
    let isWaiting = true
    const leave = coming.begin({ deadline, fiber: undefined }, (result) => {
      isWaiting = false
      follow(result)
    })
    if (isWaiting) interrupt = leave
  }
  follow(effect)
  return () => interrupt()
}

/**
 * Effect's combinators for what is mostly at hand: given an exit, they go on at once, and given what is coming, they go on in
 * its callback; neither needs a fiber. What they are given has acted by then, so they stand behind an effect that is suspended,
 * or in a function that acts when it is called.
 */
export const flatMap = <A, E, R, B, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  next: (value: A) => Effect.Effect<B, E2, R2>
): Effect.Effect<B, E | E2, R | R2> => {
  const exit = exitOf(effect)
  if (exit === undefined) {
    const coming = comingOf(effect)
    return coming === undefined ? Effect.flatMap(effect, next) : thenWith(coming, (result) => flatMap(result, next))
  }
  return Exit.isSuccess(exit) ? attempt(() => next(exit.value)) : Effect.failCause(exit.cause)
}

export const map = <A, E, R, B>(effect: Effect.Effect<A, E, R>, change: (value: A) => B): Effect.Effect<B, E, R> => {
  const exit = exitOf(effect)
  if (exit === undefined) {
    const coming = comingOf(effect)
    return coming === undefined ? Effect.map(effect, change) : thenWith(coming, (result) => map(result, change))
  }
  return Exit.isSuccess(exit) ? attempt(() => Effect.succeed(change(exit.value))) : Effect.failCause(exit.cause)
}

export const catchCause = <A, E, R, B, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  recover: (cause: Cause.Cause<E>) => Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E2, R | R2> => {
  const exit = exitOf(effect)
  if (exit === undefined) {
    const coming = comingOf(effect)
    return coming === undefined
      ? Effect.catchCause(effect, recover)
      : thenWith(coming, (result) => catchCause(result, recover))
  }
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
  if (exit !== undefined) {
    ended(exit)
    return exit
  }
  const coming = comingOf(effect)
  if (coming === undefined) return Effect.onExit(effect, (exit) => Effect.sync(() => ended(exit)))
  const { begin, isInterruptible } = coming
  return new Coming((by, resume) => {
    let isWaiting = true
    const leave = begin(by, (result) => {
      isWaiting = false
      resume(onExit(result, ended))
    })
    return () => {
      if (!isWaiting) return
      isWaiting = false
      leave()
      ended(Exit.interrupt())
    }
  }, isInterruptible)
}

export const interruptible = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  const coming = comingOf(effect)
  if (coming === undefined) return exitOf(effect) ?? Effect.interruptible(effect)
  return new Coming((by, resume) => coming.begin(by, (result) => resume(interruptible(result))), true)
}

/** Who waits for what is coming may leave if it is `interruptible`, but not what follows. */
export const uninterruptible = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  const coming = comingOf(effect)
  if (coming?.isInterruptible === true) return thenWith(coming, uninterruptible)
  return exitOf(effect) ?? Effect.uninterruptible(effect)
}

export const all = <A, E, R>(effects: ReadonlyArray<Effect.Effect<A, E, R>>): Effect.Effect<ReadonlyArray<A>, E, R> => {
  const values: Array<A> = []
  for (const effect of effects) {
    const exit = exitOf(effect)
    if (exit?._tag !== "Success") return Effect.all(effects)
    values.push(exit.value)
  }
  return Effect.succeed(values)
}
