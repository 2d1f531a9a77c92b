import { Effect } from "effect"
import { laterUse, leasedAt, neverUsed, reportedAt } from "../../domain/routing/LastUse.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { CredentialUse, type UsedCredential } from "../../port/CredentialUse.ts"
import type { LeaseTerms } from "./Lease.ts"
import { makeWriteBehind } from "./makeWriteBehind.ts"

/** Notes when credentials are leased, succeed and fail. A credential is written once in ten seconds however often it is used. */
export const makeUseLedger = Effect.gen(function* () {
  const { store } = yield* CredentialUse
  const add = yield* makeWriteBehind<UsedCredential>({
    what: "The last use of credentials",
    keyOf: ({ account_id, credential_id }) => `${account_id} ${credential_id}`,
    merge: (one, other) => ({ ...one, ...laterUse(one, other) }),
    store: (uses) => Effect.as(store(uses), []),
    wait: "10 seconds",
    batch: 1000,
    max: 20_000
  })
  return {
    leased: ({ account_id, credential_id, leased_at }: LeaseTerms): void =>
      add({ account_id, credential_id, ...leasedAt(leased_at) }),
    reported: ({ account_id, credential_id, key_version }: LeaseTerms, outcome: Outcome, at: number): void => {
      const seen = reportedAt(outcome, at, key_version)
      if (seen !== neverUsed) add({ account_id, credential_id, ...seen })
    }
  }
})
