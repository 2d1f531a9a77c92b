import { Array as Arr, Cause, type Duration, Effect, Exit, Latch, References, Schedule } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"

interface WriteBehind<A> {
  /** Names the changes in the log. */
  readonly subject: string
  readonly keyOf: (change: A) => string
  /** Combines two changes of one key, in either order. */
  readonly merge: (one: A, other: A) => A
  /** Must be idempotent. Returns changes whose rows were locked, to be stored later. */
  readonly store: (changes: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<A>, ServiceUnavailable>
  /** How long changes wait to be stored together. */
  readonly wait: Duration.Input
  /** Maximum changes of one statement. */
  readonly batch: number
  /** Maximum keys with unstored changes; changes of further keys are lost. */
  readonly max: number
}

const retryAfter = "1 second"
const closingTimeout = "1 second"

/** Whether to retry: the database is away or busy, or storing was interrupted. Otherwise a change is at fault. */
const isTransient = (cause: Cause.Cause<unknown>): boolean => {
  const failure = Cause.squash(cause)
  return (
    Cause.hasInterrupts(cause) ||
    failure instanceof ServiceUnavailable ||
    (failure instanceof DatabaseFailure && failure.isTransientOrLate)
  )
}

/**
 * Makes a buffer of changes that stores them in the background and, for up to a second, when the scope closes. Returns
 * the function that adds a change; it ignores the change if `max` other keys already have unstored ones. Invariant:
 * until closing ends, every added change, alone or merged with others of its key, is waiting, being stored, stored, or
 * dropped with a log line because it can never be stored.
 */
export const makeWriteBehind = Effect.fnUntraced(function* <A>(options: WriteBehind<A>) {
  const { batch, keyOf, max, merge, store, wait, subject } = options
  const waiting = new Map<string, A>()
  const isFilled = Latch.makeUnsafe()
  let storingCount = 0
  let isFailing = false

  const enqueue = (change: A): void => {
    const key = keyOf(change)
    const other = waiting.get(key)
    waiting.set(key, other === undefined ? change : merge(other, change))
  }

  /** Stores a batch; one by one if a change is at fault. Fails if the database is unreachable or busy. */
  const storeChanges = (changes: ReadonlyArray<A>): Effect.Effect<void, unknown> =>
    Effect.matchCauseEffect(
      Effect.suspend(() => store(changes)),
      {
        onSuccess: (locked) => Effect.sync(() => locked.forEach(enqueue)),
        onFailure: (cause) => {
          if (isTransient(cause)) return Effect.failCause(cause)
          if (changes.length > 1) return Effect.forEach(changes, (one) => storeChanges([one]), { discard: true })
          const failure = Cause.squash(cause)
          const reason = failure instanceof DatabaseFailure ? failure.message : "unexpected"
          return Effect.logError(`${subject} cannot be stored, and one was dropped: ${reason}`)
        }
      }
    )

  /** Moves the changes of these keys from the waiting ones to the store, or back if that fails. */
  const storeBatch = (keys: ReadonlyArray<string>) =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        const changes = keys.map((key) => waiting.get(key) as A)
        keys.forEach((key) => waiting.delete(key))
        storingCount = changes.length
        return changes
      }),
      storeChanges,
      (changes, exit) =>
        Effect.sync(() => {
          storingCount = 0
          if (Exit.isSuccess(exit)) return
          changes.forEach(enqueue)
          isFilled.openUnsafe()
        })
    )

  /** Stores the changes waiting now. */
  const storeAll = Effect.suspend(() => {
    isFilled.closeUnsafe()
    return Effect.forEach(Arr.chunksOf(waiting.keys(), batch), storeBatch, { discard: true })
  })

  const storeOrPause = Effect.matchCauseEffect(storeAll, {
    onSuccess: () => Effect.sync(() => void (isFailing = false)),
    onFailure: (cause) => {
      const isFirst = !isFailing
      isFailing = true
      return Effect.andThen(
        isFirst ? Effect.logWarning(`${subject} could not be stored`, cause) : Effect.void,
        Effect.sleep(retryAfter)
      )
    }
  })
  /** Waits for the next added change; if locked changes wait to be retried, no longer than `retryAfter`. */
  const untilFilled = Effect.suspend(() =>
    waiting.size === 0 ? isFilled.await : Effect.timeoutOption(isFilled.await, retryAfter)
  )
  const storeForever = Effect.forever(Effect.andThen(Effect.andThen(untilFilled, Effect.sleep(wait)), storeOrPause))
  const storeRest = Effect.repeat(storeAll, {
    until: () => waiting.size === 0,
    schedule: Schedule.spaced("100 millis")
  })

  // Finalizers run in reverse: interrupting `storeForever` puts its changes back, then `storeRest` stores everything.
  yield* Effect.addFinalizer(() => Effect.exit(Effect.timeout(Effect.interruptible(storeRest), closingTimeout)))
  yield* Effect.forkScoped(Effect.provideService(storeForever, References.TracerEnabled, false))

  return (change: A): void => {
    if (!waiting.has(keyOf(change)) && waiting.size + storingCount >= max) return
    enqueue(change)
    isFilled.openUnsafe()
  }
})
