import { Duration, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { mergeUses, useFromLease, useFromOutcome } from "../../../src/domain/routing/LastUse.ts"
import { CredentialUse, type UsedCredential } from "../../../src/port/CredentialUse.ts"
import { RequestTimeout } from "../../../src/runtime/Deadline.ts"
import type { LeaseTerms } from "../../../src/service/routing/Lease.ts"
import { makeUseLedger } from "../../../src/service/routing/ledgers.ts"
import { assert, describe, it } from "../../support/it.ts"

const account_id = AccountId.make("01935f6a-0000-7000-8000-000000000000")
const credential_id = CredentialId.make("01935f6a-0000-7000-8000-000000000001")

const terms: LeaseTerms = {
  account_id,
  credential_id,
  key_version: 1,
  label: "sk-...AbCd",
  provider: "openai",
  model: "a/model",
  region: null,
  keys: "as_stored",
  request_id: "a request",
  leased_at: 0
}

describe("the last use of credentials", () => {
  it.effect("is written with all that happened meanwhile, at most once in 10 seconds per credential", function* () {
    const writes: Array<readonly [at: number, uses: ReadonlyArray<UsedCredential>]> = []
    const clock = yield* Effect.clockWith(Effect.succeed)
    const port = Layer.mock(CredentialUse, {
      store: (uses) => Effect.sync(() => (writes.push([clock.currentTimeMillisUnsafe(), uses]), []))
    })
    const { recordLease, recordOutcome } = yield* makeUseLedger(() => assert.fail("a use was lost")).pipe(
      Effect.provide([port, Layer.succeed(RequestTimeout, Duration.seconds(3))])
    )
    recordLease(terms)
    yield* TestClock.adjust(4_000)
    recordOutcome(terms, { _tag: "Rejected" }, 4_000)
    recordOutcome(terms, { _tag: "Abandoned" }, 4_000)
    yield* TestClock.adjust(8_000)
    recordOutcome(terms, { _tag: "Succeeded" }, 12_000)
    yield* TestClock.adjust("1 minute")
    const ids = { account_id, credential_id }
    const leased = useFromLease(0)
    assert.deepStrictEqual(writes, [
      [10_000, [{ ...ids, ...mergeUses(leased, useFromOutcome({ _tag: "Rejected" }, 4_000, 1)) }]],
      [22_000, [{ ...ids, ...useFromOutcome({ _tag: "Succeeded" }, 12_000, 1) }]]
    ])
  })
})
