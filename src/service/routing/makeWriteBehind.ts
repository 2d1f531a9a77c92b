import { Cause, type Duration, Effect, Exit, Latch, References, Schedule } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"

interface WriteBehind<A> {
  /** What the log calls the changes. */
  readonly what: string
  readonly keyOf: (change: A) => string
  /** What two changes of one key amount to. */
  readonly merge: (one: A, other: A) => A
  /** Must be safe to run twice with the same changes. Answers with those that met a lock: they are stored later. */
  readonly store: (changes: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<A>, ServiceUnavailable>
  /** How long changes wait for others to be stored with them. */
  readonly wait: Duration.Input
  /** How many changes one statement stores. */
  readonly batch: number
  /** How many keys may have changes that are not stored. Changes of further keys are ignored. */
  readonly max: number
}

const retryAfter = "1 second"
const closingTimeout = "1 second"

/** Whether the same changes may be stored later: the database is away or busy. Anything else is due to a change itself. */
const isPassing = (cause: Cause.Cause<unknown>): boolean => {
  const failure = Cause.squash(cause)
  return (
    Cause.hasInterrupts(cause) ||
    failure instanceof ServiceUnavailable ||
    (failure instanceof DatabaseFailure && failure.isAway)
  )
}

/**
 * Stores changes in the background and, for up to a second, when the scope closes; returns what adds one. Invariant: an
 * added change is waiting, being stored or stored, alone or merged with others of its key, unless it can never be stored:
 * then it is dropped, with a line in the log.
 */
export const makeWriteBehind = Effect.fnUntraced(function* <A>(options: WriteBehind<A>) {
  const { batch, keyOf, max, merge, store, wait, what } = options
  const waiting = new Map<string, A>()
  const isFilled = Latch.makeUnsafe()
  let storing = 0
  let isFailing = false

  const keep = (change: A, key: string, other = waiting.get(key)): void => {
    waiting.set(key, other === undefined ? change : merge(other, change))
  }
  const put = (...change: Parameters<typeof keep>): void => {
    keep(...change)
    isFilled.openUnsafe()
  }

  const take = (keys: ReadonlyArray<string>): ReadonlyArray<A> =>
    keys.flatMap((key) => {
      const change = waiting.get(key)
      waiting.delete(key)
      return change === undefined ? [] : [change]
    })

  /** Stores the changes of a batch singly if they cannot be stored together. Fails if the database takes none now. */
  const storeSome = (changes: ReadonlyArray<A>): Effect.Effect<void, unknown> =>
    Effect.matchCauseEffect(
      Effect.suspend(() => store(changes)),
      {
        onSuccess: (locked) => Effect.sync(() => locked.forEach((change) => keep(change, keyOf(change)))),
        onFailure: (cause) => {
          if (isPassing(cause)) return Effect.failCause(cause)
          if (changes.length > 1) return Effect.forEach(changes, (one) => storeSome([one]), { discard: true })
          const failure = Cause.squash(cause)
          const why = failure instanceof DatabaseFailure ? failure.message : "unexpected"
          return Effect.logError(`${what} cannot be stored, and one was dropped: ${why}`)
        }
      }
    )

  const storeBatch = (keys: ReadonlyArray<string>) =>
    Effect.suspend(() => {
      const changes = take(keys)
      storing = changes.length
      return Effect.onExit(storeSome(changes), (exit) =>
        Effect.sync(() => {
          storing = 0
          if (Exit.isFailure(exit)) changes.forEach((change) => put(change, keyOf(change)))
        })
      )
    })

  /** Stores what waits now, each key once, even if it changes again meanwhile. */
  const storeAll = Effect.suspend(() => {
    isFilled.closeUnsafe()
    const keys = Array.from(waiting.keys())
    const batches = Array.from({ length: Math.ceil(keys.length / batch) }, (_, n) =>
      keys.slice(n * batch, (n + 1) * batch)
    )
    return Effect.forEach(batches, storeBatch, { discard: true })
  })

  const attempt = Effect.matchCauseEffect(storeAll, {
    onSuccess: () => Effect.sync(() => void (isFailing = false)),
    onFailure: (cause) => {
      const isFirst = !isFailing
      isFailing = true
      isFilled.openUnsafe()
      return Effect.andThen(
        isFirst ? Effect.logWarning(`${what} could not be stored`, cause) : Effect.void,
        Effect.sleep(retryAfter)
      )
    }
  })
  /** What met a lock is tried again with what is added next, or after a while. */
  const filled = Effect.suspend(() =>
    waiting.size === 0 ? isFilled.await : Effect.timeoutOption(isFilled.await, retryAfter)
  )
  const work = Effect.forever(Effect.andThen(Effect.andThen(filled, Effect.sleep(wait)), attempt))
  const storeRest = Effect.repeat(storeAll, {
    until: () => waiting.size === 0,
    schedule: Schedule.spaced("100 millis")
  })

  // Finalizers run in reverse: storing is interrupted, which puts its changes back, and then everything is stored.
  yield* Effect.addFinalizer(() => Effect.exit(Effect.timeout(Effect.interruptible(storeRest), closingTimeout)))
  yield* Effect.forkScoped(Effect.provideService(work, References.TracerEnabled, false))

  return (change: A): void => {
    const key = keyOf(change)
    const other = waiting.get(key)
    if (other !== undefined || waiting.size + storing < max) put(change, key, other)
  }
})
