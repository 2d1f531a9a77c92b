import { Clock, Effect } from "effect"
import { monotonicMillis } from "../../domain/routing/Health.ts"
import { makeRequestQueue } from "../../runtime/FairQueue.ts"

/**
 * Keeps work that takes longer for larger pools from blocking requests. `inTurn` runs one effect at a time, of one account
 * after another. `throttled` runs synchronous work, and then pauses for as long as the work took.
 */
export const makeTurns = Effect.map(Clock.Clock, (clock) => ({
  inTurn: makeRequestQueue({ inProgress: 1, waiting: Number.POSITIVE_INFINITY }),
  throttled: <A>(work: () => A): Effect.Effect<A> =>
    Effect.suspend(() => {
      const began = monotonicMillis(clock)
      const result = work()
      const took = monotonicMillis(clock) - began
      return Effect.as(took < 0.5 ? Effect.yieldNow : Effect.sleep(took), result)
    })
}))
