import { Clock, Effect } from "effect"
import { type Health, join, type CooldownCause } from "../../domain/routing/Health.ts"
import { monotonicMillis } from "../../domain/routing/Moment.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { type ParkingChange, Parkings } from "../../port/Parkings.ts"
import { type LeasedKey, makeHealthState, type PendingCooldown } from "./HealthState.ts"
import { makeWriteBehind } from "./makeWriteBehind.ts"

/**
 * What attempts have shown of keys. A report holds in this process at once; it is stored in the background, and other
 * processes join it to what they know when they next read the pool. `parked` gets the cause of each cooldown that grew.
 */
export const makeHealthLedger = Effect.fnUntraced(function* (parked: (cause: CooldownCause) => void) {
  const { store } = yield* Parkings
  const clock = yield* Clock.Clock
  const state = makeHealthState()

  const changeOf = ({ cooldown: { until, ...cooldown }, ...of }: PendingCooldown): ParkingChange => ({
    ...of,
    ...cooldown,
    remaining: Number.isFinite(until) ? until - monotonicMillis(clock) : null
  })

  const add = yield* makeWriteBehind<PendingCooldown>({
    what: "What was seen of keys",
    keyOf: ({ account_id, credential_id, model }) => `${account_id} ${credential_id} ${model}`,
    merge: (one, other) => ({ ...one, cooldown: join(one.cooldown, other.cooldown) }),
    store: (changes) =>
      Effect.suspend(() => {
        const sent = changes.map(changeOf)
        return Effect.map(store(sent), (locked) => changes.filter((_, n) => locked.some((one) => one === sent[n])))
      }),
    wait: 0,
    batch: 500,
    max: 10_000
  })

  return {
    ...state,
    /** Learns from the outcome of a lease that was made under `at`. */
    report: (key: LeasedKey, at: Health, outcome: Outcome): void => {
      for (const grown of state.report(key, at, outcome, monotonicMillis(clock))) {
        if (grown.cooldown.cause !== null) parked(grown.cooldown.cause)
        add(grown)
      }
    }
  }
})
