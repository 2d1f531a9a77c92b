import { Clock, Effect } from "effect"
import { momentOf, monotonicMillis } from "../../domain/routing/Health.ts"
import { CredentialPools } from "../../port/CredentialPools.ts"

/**
 * Makes the clock that all instances share: the database's. Invariant: until the database has told its time, the clock
 * is the machine's; from then on its offset to this process's monotonic clock never changes, so that every conversion of
 * a time gives the same result. Times are in milliseconds: `monotonic` of that clock, others since 1970.
 */
export const makeDatabaseClock = Effect.gen(function* () {
  const { time } = yield* CredentialPools
  const clock = yield* Clock.Clock
  const { monotonic, wall } = momentOf(clock)
  let offset = wall - monotonic
  let isSynchronized = false
  const asking = Effect.suspend(() => {
    const asked_at = monotonicMillis(clock)
    return Effect.map(time, (database) => {
      if (isSynchronized) return
      isSynchronized = true
      offset = database - (asked_at + monotonicMillis(clock)) / 2
    })
  })
  return {
    /** Asks the database for its time, unless it has told that before. */
    synchronize: Effect.suspend(() => (isSynchronized ? Effect.void : Effect.ignoreCause(asking))),
    timeAt: (monotonic = monotonicMillis(clock)): number => monotonic + offset,
    toMonotonic: (database: number): number => database - offset
  }
})
