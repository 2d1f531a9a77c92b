import { Cause, Clock, Effect, Exit } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import type { Cooldowns, Health, Moment } from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { type ParkingChange, Parkings } from "../../port/Parkings.ts"
import { makeHealthState, type Tried, type Waiting } from "./HealthState.ts"
import { makeRouterMeter } from "./RouterMeter.ts"

/** How many changes one statement stores. */
const maxBatch = 500

const retryAfter = "1 second"
const closingTimeout = "1 second"

/** The time of cooldowns: milliseconds of the monotonic clock, which nobody sets. */
export const monotonicMillis = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

export const momentOf = (clock: Clock.Clock): Moment => ({
  monotonic: monotonicMillis(clock),
  wall: clock.currentTimeMillisUnsafe()
})

/** Whether the same change may be stored later: the database is away or busy. Anything else is due to a change itself. */
const isPassing = (cause: Cause.Cause<unknown>): boolean => {
  const failure = Cause.squash(cause)
  return (
    Cause.hasInterrupts(cause) ||
    failure instanceof ServiceUnavailable ||
    (failure instanceof DatabaseFailure && (failure.isTransient || failure.kind === "Deadline"))
  )
}

/**
 * What attempts have shown of keys. A report holds in this process at once; it is stored in the background, and other
 * processes join it to what they know when they next read the pool.
 */
export const makeHealthLedger = Effect.gen(function* () {
  const { store } = yield* Parkings
  const { parked } = yield* makeRouterMeter
  const clock = yield* Clock.Clock
  const fork = Effect.runForkWith(yield* Effect.context())
  const state = makeHealthState()
  let isStoring = false
  let isClosed = false

  const changeOf = ({ cooldown, ...of }: Waiting): ParkingChange => {
    const { cause, epoch, key_version, strikes, until } = cooldown
    const remaining = Number.isFinite(until) ? until - monotonicMillis(clock) : null
    return { ...of, key_version, epoch, cause, strikes, remaining }
  }

  /** Returns false if changes had to be put back, because the database does not take any now. */
  const storeOnly = (batch: ReadonlyArray<Waiting>): Effect.Effect<boolean> =>
    Effect.flatMap(Effect.exit(Effect.suspend(() => store(batch.map(changeOf)))), (exit): Effect.Effect<boolean> => {
      if (Exit.isSuccess(exit)) return Effect.succeed(true)
      if (isPassing(exit.cause)) {
        state.putBack(batch)
        return Effect.succeed(false)
      }
      const [first] = batch
      if (batch.length > 1 || first === undefined) {
        return Effect.map(
          Effect.forEach(batch, (one) => storeOnly([one])),
          (stored) => stored.every((is) => is)
        )
      }
      const failure = Cause.squash(exit.cause)
      const why = failure instanceof DatabaseFailure ? failure.message : "unexpected"
      const dropped = `What was seen of the key of credential ${first.credential_id} cannot be stored and is dropped`
      return Effect.as(Effect.logError(`${dropped}: ${why}`), true)
    })

  const storeBatch = Effect.suspend(() => storeOnly(state.take(maxBatch)))

  const storeAll: Effect.Effect<void> = Effect.suspend(() => {
    if (isClosed || !state.isWaiting()) {
      isStoring = false
      return Effect.void
    }
    return Effect.flatMap(storeBatch, (stored) =>
      stored ? storeAll : Effect.andThen(Effect.sleep(retryAfter), storeAll)
    )
  })

  yield* Effect.addFinalizer(() => {
    isClosed = true
    return state.isWaiting() ? Effect.ignore(Effect.timeout(storeBatch, closingTimeout)) : Effect.void
  })

  return {
    healthOf: (tried: Tried, stored: Cooldowns, now: number): Health => state.healthOf(tried, stored, now),
    admit: state.admit,
    giveBack: state.giveBack,
    /** Learns from the outcome of a lease that was made under `at`. */
    report: (tried: Tried, at: Health, outcome: Outcome): void => {
      const grown = state.report(tried, at, outcome, monotonicMillis(clock))
      for (const { cause } of grown) if (cause !== null) parked(cause)
      if (grown.length === 0 || isStoring) return
      isStoring = true
      fork(storeAll)
    }
  }
})
