import { Clock, Effect } from "effect"
import { monotonicMillis } from "../../domain/routing/Health.ts"
import { makeRequestQueue } from "../../runtime/FairQueue.ts"

/**
 * Runs work that is linear in a pool one at a time, in rotation of accounts. After a slice, which takes milliseconds for a
 * large pool, yields to other work for as long.
 */
export const makeTurns = Effect.map(Clock.Clock, (clock) => ({
  inTurn: makeRequestQueue({ inProgress: 1, waiting: Number.POSITIVE_INFINITY }),
  slice: <A>(work: () => A): Effect.Effect<A> =>
    Effect.suspend(() => {
      const began = monotonicMillis(clock)
      const result = work()
      const took = monotonicMillis(clock) - began
      return Effect.as(took < 0.5 ? Effect.yieldNow : Effect.sleep(took), result)
    })
}))
