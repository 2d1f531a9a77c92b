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

/** An effect that waits for a callback, for which it needs no fiber. Who waits may leave it only if it is interruptible. */
abstract class Coming<A, E, R> extends Effectable.Class<A, E, R> {
  abstract readonly begins: Begin<unknown, unknown, unknown>
  abstract readonly isInterruptible: boolean
  /** What follows from what `begins` resumes with. */
  abstract applied(result: Effect.Effect<unknown, unknown, unknown>): Effect.Effect<A, E, R>
  /** Tells whoever is told of the exit that it was left. */
  abstract left(): void

  begin(by: Waiter, resume: (result: Effect.Effect<A, E, R>) => void): () => void {
    let isWaiting = true
    const leave = this.begins(by, (result) => {
      isWaiting = false
      resume(this.applied(result))
    })
    return () => {
      if (!isWaiting) return
      isWaiting = false
      leave()
      this.left()
    }
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

class First<A, E, R> extends Coming<A, E, R> {
  readonly begins: Begin<unknown, unknown, unknown>
  readonly isInterruptible = false

  constructor(begins: Begin<A, E, R>) {
    super()
    this.begins = begins
  }

  applied(result: Effect.Effect<unknown, unknown, unknown>): Effect.Effect<A, E, R> {
    return result as Effect.Effect<A, E, R>
  }

  left(): void {}
}

type Next<A, E, R, Given, B, E2, R2> = (result: Effect.Effect<A, E, R>, given: Given) => Effect.Effect<B, E2, R2>

/** What follows from another one. It has no closures, and so has no combinator: every call would pay for them. */
class Then<A, E, R, Given, B, E2, R2> extends Coming<B, E2, R2> {
  readonly first: Coming<A, E, R>
  readonly next: Next<A, E, R, Given, B, E2, R2>
  readonly given: Given
  readonly begins: Begin<unknown, unknown, unknown>
  readonly isInterruptible: boolean

  constructor(
    first: Coming<A, E, R>,
    next: Next<A, E, R, Given, B, E2, R2>,
    given: Given,
    isInterruptible = first.isInterruptible
  ) {
    super()
    this.first = first
    this.next = next
    this.given = given
    this.begins = first.begins
    this.isInterruptible = isInterruptible
  }

  applied(result: Effect.Effect<unknown, unknown, unknown>): Effect.Effect<B, E2, R2> {
    return this.next(this.first.applied(result), this.given)
  }

  left(): void {
    this.first.left()
  }
}

type Ended<A, E> = (exit: Exit.Exit<A, E>) => void

class Told<A, E, R> extends Then<A, E, R, Ended<A, E>, A, E, R> {
  override left(): void {
    super.left()
    this.given(Exit.interrupt())
  }
}

/** An effect that waits for what `begin` begins each time it is run. */
export const coming = <A, E = never, R = never>(begin: Begin<A, E, R>): Effect.Effect<A, E, R> => new First(begin)

const comingOf = <A, E, R>(effect: Effect.Effect<A, E, R>): Coming<A, E, R> | undefined =>
  effect instanceof Coming ? (effect as Coming<A, E, R>) : undefined

/** The exit of an effect, if that is all it is. */
export const exitOf = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Exit.Success<A> | Exit.Failure<never, E> | undefined =>
  Exit.isExit(effect) ? (effect as Exit.Success<A> | Exit.Failure<never, E>) : undefined

/** What is thrown is a defect, as in an effect. */
const attempt = <Given, A, E, R>(next: (given: Given) => Effect.Effect<A, E, R>, given: Given) => {
  try {
    return next(given)
  } catch (defect) {
    return Effect.die(defect)
  }
}

const nothing = () => {}

/** Begins what `next` returns each time it is run. */
export const suspend = <A, E, R>(next: () => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  new First((by, resume) => {
    const effect = attempt(next, undefined)
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
  ended: Ended<A, E>
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
  if (exit !== undefined) return exit._tag === "Success" ? attempt(next, exit.value) : exit
  const coming = comingOf(effect)
  return coming === undefined ? Effect.flatMap(effect, next) : new Then(coming, flatMap<A, E, R, B, E2, R2>, next)
}

export const map = <A, E, R, B>(effect: Effect.Effect<A, E, R>, change: (value: A) => B): Effect.Effect<B, E, R> => {
  const exit = exitOf(effect)
  if (exit === undefined) {
    const coming = comingOf(effect)
    return coming === undefined ? Effect.map(effect, change) : new Then(coming, map<A, E, R, B>, change)
  }
  if (exit._tag === "Failure") return exit
  try {
    return Effect.succeed(change(exit.value))
  } catch (defect) {
    return Effect.die(defect)
  }
}

export const catchCause = <A, E, R, B, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  recover: (cause: Cause.Cause<E>) => Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E2, R | R2> => {
  const exit = exitOf(effect)
  if (exit !== undefined) return exit._tag === "Success" ? exit : attempt(recover, exit.cause)
  const coming = comingOf(effect)
  return coming === undefined
    ? Effect.catchCause(effect, recover)
    : new Then(coming, catchCause<A, E, R, B, E2, R2>, recover)
}

export const catchError = <A, E, R, B, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  recover: (error: E) => Effect.Effect<B, E2, R2>
): Effect.Effect<A | B, E2, R | R2> => {
  const exit = exitOf(effect)
  if (exit === undefined) {
    const coming = comingOf(effect)
    return coming === undefined
      ? Effect.catch(effect, recover)
      : new Then(coming, catchError<A, E, R, B, E2, R2>, recover)
  }
  if (exit._tag === "Success") return exit
  const error = Cause.findErrorOption(exit.cause)
  return Option.isSome(error) ? attempt(recover, error.value) : (exit as Exit.Exit<never>)
}

export const mapError = <A, E, R, E2>(
  effect: Effect.Effect<A, E, R>,
  change: (error: E) => E2
): Effect.Effect<A, E2, R> => {
  const exit = exitOf(effect)
  if (exit?._tag === "Success") return exit
  return catchError(effect, (error) => Effect.fail(change(error)))
}

const telling =
  <A, E>(ended: Ended<A, E>) =>
  (exit: Exit.Exit<A, E>) =>
    Effect.sync(() => ended(exit))

export const onExit = <A, E, R>(effect: Effect.Effect<A, E, R>, ended: Ended<A, E>): Effect.Effect<A, E, R> => {
  const exit = exitOf(effect)
  if (exit !== undefined) {
    try {
      ended(exit)
    } catch (defect) {
      return Effect.die(defect)
    }
    return exit
  }
  const coming = comingOf(effect)
  return coming === undefined ? Effect.onExit(effect, telling(ended)) : new Told(coming, onExit<A, E, R>, ended)
}

export const interruptible = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  const coming = comingOf(effect)
  return coming === undefined
    ? (exitOf(effect) ?? Effect.interruptible(effect))
    : new Then(coming, interruptible<A, E, R>, undefined, true)
}

/** What is coming stays interruptible if it is, but what follows does not. */
export const uninterruptible = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  const coming = comingOf(effect)
  return coming?.isInterruptible === true
    ? new Then(coming, uninterruptible<A, E, R>, undefined)
    : (exitOf(effect) ?? Effect.uninterruptible(effect))
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
