import { Clock, Effect, Scope } from "effect"
import { type CooldownCause, type Health, join, monotonicMillis } from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { type ParkingChange, Parkings } from "../../port/Parkings.ts"
import { type LeasedKey, makeHealthState, type PendingCooldown } from "./HealthState.ts"
import { RequestTimeout } from "../../runtime/Deadline.ts"
import { makeWriteBehind } from "./makeWriteBehind.ts"
import { mergeUses, useFromLease, neverUsed, useFromOutcome } from "../../domain/routing/LastUse.ts"
import { CredentialUse, type UsedCredential } from "../../port/CredentialUse.ts"
import type { LeaseTerms } from "./Lease.ts"

/**
 * Makes the record of which keys upstreams refuse. A report applies in this process at once and is stored in the
 * background; other processes apply it when they next read the pool. `onParked` gets the cause of each cooldown that
 * grew; `onLost` is called for each change that was lost.
 */
const makeHealthLedger = Effect.fnUntraced(function* (onParked: (cause: CooldownCause) => void, onLost: () => void) {
  const { store } = yield* Parkings
  const clock = yield* Clock.Clock
  const state = makeHealthState()

  const changeOf = ({ cooldown: { until, ...cooldown }, ...key }: PendingCooldown): ParkingChange => ({
    ...key,
    ...cooldown,
    remaining: Number.isFinite(until) ? until - monotonicMillis(clock) : null
  })

  const storeLater = yield* makeWriteBehind<PendingCooldown>({
    subject: "The health of keys",
    accountOf: ({ account_id }) => account_id,
    keyOf: ({ account_id, credential_id, model }) => `${account_id} ${credential_id} ${model}`,
    merge: (one, other) => ({ ...one, cooldown: join(one.cooldown, other.cooldown) }),
    store: (changes) =>
      Effect.suspend(() => {
        const sent = changes.map(changeOf)
        // Returns the changes to store later: `store` returns the objects of `sent` whose credentials are locked.
        return Effect.map(store(sent), (locked) =>
          changes.filter((_, index) => locked.some((change) => change === sent[index]))
        )
      }),
    wait: 0,
    batch: 500,
    max: 10_000,
    closing: yield* RequestTimeout,
    onLost
  })

  return {
    ...state,
    /** Applies the outcome of a lease that began with health `atLease`, as of a time of the monotonic clock. */
    report: (key: LeasedKey, atLease: Health, outcome: Outcome, answered_at: number): void => {
      for (const pending of state.report(key, atLease, outcome, answered_at, monotonicMillis(clock))) {
        if (pending.cooldown.cause !== null) onParked(pending.cooldown.cause)
        storeLater(pending)
      }
    }
  }
})

/**
 * Makes the record of when credentials were last leased, succeeded and failed, stored every ten seconds. `onLost` is
 * called for each change that was lost.
 */
export const makeUseLedger = Effect.fnUntraced(function* (onLost: () => void) {
  const { store } = yield* CredentialUse
  const storeLater = yield* makeWriteBehind<UsedCredential>({
    subject: "The last use of credentials",
    accountOf: ({ account_id }) => account_id,
    keyOf: ({ account_id, credential_id }) => `${account_id} ${credential_id}`,
    merge: (one, other) => ({ ...one, ...mergeUses(one, other) }),
    store,
    wait: "10 seconds",
    batch: 1000,
    max: 20_000,
    closing: yield* RequestTimeout,
    onLost
  })
  return {
    recordLease: ({ account_id, credential_id, leased_at }: LeaseTerms): void =>
      storeLater({ account_id, credential_id, ...useFromLease(leased_at) }),
    recordOutcome: ({ account_id, credential_id, key_version }: LeasedKey, outcome: Outcome, at: number): void => {
      const use = useFromOutcome(outcome, at, key_version)
      if (use !== neverUsed) storeLater({ account_id, credential_id, ...use })
    }
  }
})

/** Makes both records. They close at the same time, within one deadline. */
export const makeLedgers = Effect.fnUntraced(function* (
  onParked: (cause: CooldownCause) => void,
  onLost: (record: "health" | "use") => void
) {
  const scope = yield* Scope.fork(yield* Effect.scope, "parallel")
  const within = <A, E, R>(ledger: Effect.Effect<A, E, R>) =>
    Effect.flatMap(Scope.fork(scope), (own) => Scope.provide(ledger, own))
  const uses = yield* within(makeUseLedger(() => onLost("use")))
  // The last to open is the first to close: it gets the connection first.
  const health = yield* within(makeHealthLedger(onParked, () => onLost("health")))
  return { health, uses }
})

export type HealthLedger = Effect.Success<ReturnType<typeof makeHealthLedger>>
