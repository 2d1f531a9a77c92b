import { Array as Arr, Cause, type Duration, Effect, Exit, Latch, Option, Schedule } from "effect"
import type { Answer } from "../../port/DatabaseFailure.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"

interface WriteBehind<A> {
  /** Names the changes in the log. */
  readonly subject: string
  readonly keyOf: (change: A) => string
  readonly accountOf: (change: A) => string
  /** Combines two changes of one key, in either order. */
  readonly merge: (one: A, other: A) => A
  /** Must be idempotent. Returns changes whose rows were locked, to be stored later. */
  readonly store: (changes: ReadonlyArray<A>) => Answer<ReadonlyArray<A>>
  /** How long changes wait to be stored together. */
  readonly wait: Duration.Input
  /** Maximum changes of one statement. */
  readonly batch: number
  /** Maximum keys with unstored changes. An account may have as many as are free; changes of further keys are lost. */
  readonly max: number
  /** How long closing may take. */
  readonly closing: Duration.Input
  /** Counts a lost change. */
  readonly onLost: () => void
}

const retryAfter = "1 second"

/**
 * Makes a buffer of changes that stores them in the background, and when the scope closes. Returns the function that
 * adds a change. Invariant: until closing ends, a change, alone or merged with others of its key, leaves the buffer
 * only once it is stored, or counted and logged as lost. Lost are changes that the database refuses for their value,
 * those beyond an account's share of `max`, and those that closing leaves.
 */
export const makeWriteBehind = Effect.fnUntraced(function* <A>(options: WriteBehind<A>) {
  const { accountOf, batch, closing, keyOf, max, merge, onLost, store, subject, wait } = options
  const waiting = new Map<string, A>()
  /** The number of waiting keys of each account. */
  const held = new Map<string, number>()
  const isFilled = Latch.makeUnsafe()
  let hasFailed = false
  let beyondMax = 0

  const hold = (account: string, more: number) => {
    const keys = (held.get(account) ?? 0) + more
    if (keys === 0) held.delete(account)
    else held.set(account, keys)
  }

  /** Removes changes, except those that were merged with others while they were stored. */
  const remove = (changes: ReadonlyArray<A>) => {
    for (const change of changes) {
      if (waiting.get(keyOf(change)) === change) {
        waiting.delete(keyOf(change))
        hold(accountOf(change), -1)
      }
    }
  }
  const moveToEnd = (key: string) => {
    const change = waiting.get(key) as A
    waiting.delete(key)
    waiting.set(key, change)
  }

  /** Stores a batch, one by one if a change may be at fault. Fails if changes remain that must be stored later. */
  const storeBatch = (changes: Arr.NonEmptyReadonlyArray<A>): Effect.Effect<void, unknown> =>
    Effect.matchCauseEffect(
      Effect.suspend(() => store(changes)),
      {
        onSuccess: (locked) =>
          Effect.sync(() => {
            const isLocked = new Set(locked)
            remove(changes.filter((change) => !isLocked.has(change)))
          }),
        onFailure: (cause) => {
          const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
          const ofDatabase = failure?._tag === "DatabaseFailure" ? failure : undefined
          const isUnavailable = ofDatabase === undefined ? failure !== undefined : ofDatabase.isUnavailable
          if (isUnavailable || Cause.hasInterrupts(cause)) return Effect.failCause(cause)
          if (changes.length > 1) return Effect.forEach(changes, (one) => storeBatch([one]), { discard: true })
          if (ofDatabase?.isFaultOfValue !== true) {
            // A pass ends at the first unknown fault, so as to cost few statements. Last, the change delays no other.
            moveToEnd(keyOf(changes[0]))
            return Effect.failCause(cause)
          }
          remove(changes)
          onLost()
          return Effect.logError(`${subject} cannot be stored, and one change was lost: ${ofDatabase.message}`)
        }
      }
    )

  const logBeyondMax = Effect.suspend(() => {
    const lost = beyondMax
    beyondMax = 0
    return lost === 0
      ? Effect.void
      : Effect.logError(`${subject}: ${lost} changes were lost, because too many of their account waited`)
  })

  /** Stores the changes waiting now. */
  const storeAll = Effect.suspend(() => {
    isFilled.closeUnsafe()
    return Effect.forEach(Arr.chunksOf(waiting.values(), batch), storeBatch, { discard: true })
  }).pipe(
    Effect.onExit((exit) => Effect.sync(() => void (hasFailed = Exit.isFailure(exit)))),
    Effect.ensuring(logBeyondMax)
  )

  /** Waits for the next added change; if locked or failed changes wait to be retried, for `retryAfter`. */
  const untilDue = Effect.suspend(() => {
    if (hasFailed) return Effect.sleep(retryAfter)
    return waiting.size === 0 ? isFilled.await : Effect.timeoutOption(isFilled.await, retryAfter)
  })

  const storeRest = Effect.exit(storeAll).pipe(
    Effect.repeat({ until: () => waiting.size === 0, schedule: Schedule.spaced("100 millis") }),
    Effect.interruptible,
    Effect.timeoutOption(closing)
  )
  const logLeft = Effect.suspend(() => {
    const left = waiting.size
    for (let n = 0; n < left; n += 1) onLost()
    return left === 0 ? Effect.void : Effect.logError(`${subject}: ${left} changes were not stored before the stop`)
  })

  // Finalizers run in reverse: the background fiber is interrupted before the rest is stored.
  yield* Effect.addFinalizer(() => Effect.andThen(storeRest, logLeft))
  yield* repeatInBackground(
    0,
    Effect.andThen(Effect.andThen(untilDue, Effect.sleep(wait)), storeAll),
    `${subject} could not be stored`
  )

  return (change: A): void => {
    const key = keyOf(change)
    const other = waiting.get(key)
    if (other === undefined) {
      const account = accountOf(change)
      if ((held.get(account) ?? 0) >= max - waiting.size) {
        beyondMax += 1
        return onLost()
      }
      hold(account, 1)
    }
    waiting.set(key, other === undefined ? change : merge(other, change))
    isFilled.openUnsafe()
  }
})
