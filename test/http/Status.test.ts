import { DateTime, Effect } from "effect"
import { AccountId, CredentialId } from "../../src/domain/Identifiers.ts"
import { useFromOutcome } from "../../src/domain/routing/LastUse.ts"
import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { raisePools } from "../support/database/raisePools.ts"
import { createdId } from "../support/http/Bodies.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertHeaders } from "../support/http/Refusal.ts"
import { TestService, type Tenant } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const key = "sk-0123456789-0123456789-AbCd"

interface Status {
  readonly state: string
  readonly parked: ReadonlyArray<{
    readonly model: string | null
    readonly cause: string
    readonly since: string
    readonly until: string | null
  }>
}

const statusIn = (answer: Answer): Status => {
  assert.strictEqual(answer.status, 200, answer.body)
  assertHeaders(answer)
  assert.notInclude(answer.body, key.slice(5, 20))
  return (JSON.parse(answer.body) as { readonly data: Status }).data
}

const statusOf = ({ send }: Tenant, id: string) =>
  Effect.map(send({ path: `/api/v1/byok/${id}/status` }), (answer) => statusIn(answer))

const fresh = {
  state: "active",
  parked: [],
  last_leased_at: null,
  last_succeeded_at: null,
  last_failed_at: null,
  last_failure: null,
  last_refused_at: null,
  last_refused_status: null,
  last_refused_code: null
}

layerLive(TestService.layer)("GET /api/v1/byok/{id}/status", (it) => {
  it.effect("shows the most severe state of a credential, and list filters by that state", function* () {
    const { sql } = yield* TestService
    const tenant = yield* TestService.newTenant
    const { account_id } = tenant
    const id = createdId(yield* tenant.create({ provider: "azure", key }))
    const expected = Effect.fnUntraced(function* (state: string, listed = state) {
      const status = yield* statusOf(tenant, id)
      assert.strictEqual(status.state, state)
      for (const asked of ["active", "failing", "parked", "disabled", "leaked"]) {
        const found = (yield* tenant.list(`?state=${asked}`)).body.includes(id)
        assert.strictEqual(found, asked === listed, `${state} as ${asked}`)
      }
      return status
    })
    const park = (model: string, cause: string, until: string | null, key_version = 1) => sql`
        INSERT INTO credential_parkings (account_id, credential_id, model, key_version, cause, strikes, until, parked_at)
        VALUES (${account_id}, ${id}, ${model}, ${key_version}, ${cause}, 1, now() + ${until}::interval, now())
        ON CONFLICT (account_id, credential_id, model) DO UPDATE
        SET cause = excluded.cause, until = excluded.until, key_version = excluded.key_version`
    assert.deepStrictEqual(yield* expected("active"), fresh)
    yield* park("a/model", "rate_limited", "1 minute")
    const { parked } = yield* expected("parked")
    assert.deepStrictEqual(
      parked.map(({ cause, model }) => [model, cause]),
      [["a/model", "rate_limited"]]
    )
    assert.closeTo(Date.parse(parked[0]?.until ?? ""), Date.now() + 60_000, 20_000)
    yield* park("", "rejected", "1 minute")
    assert.lengthOf((yield* expected("parked")).parked, 2)
    yield* sql`DELETE FROM credential_parkings WHERE credential_id = ${id} AND model <> ''`
    for (const [cause, until, version] of [
      ["rejected", "-1 second", 1],
      ["succeeded", null, 1],
      ["rejected", "1 minute", 2]
    ] as const) {
      yield* park("", cause, until, version)
      yield* expected("active")
    }
    const { store } = yield* CredentialUse
    const seen = (outcome: Outcome, at: number, version: number) =>
      store([
        {
          account_id: AccountId.make(account_id),
          credential_id: CredentialId.make(id),
          ...useFromOutcome(outcome, at, version)
        }
      ])
    yield* park("", "rejected", "-5 hours")
    for (const [at, tag] of (["Rejected", "Forbidden", "QuotaExhausted"] as const).entries()) {
      yield* seen({ _tag: tag }, 2 * at + 1, 1)
      yield* expected("failing")
      yield* seen({ _tag: "Succeeded" }, 2 * at + 2, 1)
      yield* expected("active")
    }
    yield* seen({ _tag: "UpstreamFailed" }, 8, 1)
    yield* expected("active")
    for (let at = 20; at < 30; at += 1) {
      yield* expected("active")
      yield* seen({ _tag: "RequestRefused" }, at, 1)
    }
    yield* expected("failing")
    yield* seen({ _tag: "Succeeded" }, 30, 1)
    yield* expected("active")
    yield* seen({ _tag: "Rejected" }, 9, 2)
    yield* expected("active")
    yield* seen({ _tag: "Rejected" }, 10, 1)
    yield* park("", "rejected", "1 minute")
    yield* expected("parked")
    yield* tenant.update(id, { disabled: true })
    yield* expected("disabled")
    yield* park("", "leaked", null)
    const [leaked] = (yield* expected("leaked")).parked
    assert.deepInclude(leaked, { model: null, cause: "leaked", until: null })
    assert.closeTo(Date.parse(leaked?.since ?? ""), Date.now(), 20_000)
    yield* sql`UPDATE credentials SET is_required = true WHERE id = ${id}`
    yield* raisePools(sql)
    yield* expected("unreadable", "leaked")
  })

  it.effect("shows when the credential was last used, and its last failure", function* () {
    const tenant = yield* TestService.newTenant
    const { account_id } = tenant
    const id = createdId(yield* tenant.create({ provider: "azure", key }))
    const credential_id = CredentialId.make(id)
    const failed = { last_failed_at: 2, last_failure: "rejected" as const, last_failed_version: 1 }
    const row = { refused_since: 4, refused_in_a_row: 1 }
    const refused = { last_refused_at: 4, last_refused_status: 400, last_refused_code: "invalid_value", ...row }
    const use = { last_leased_at: 3, last_succeeded_at: 1, ...failed, ...refused }
    yield* (yield* CredentialUse).store([{ account_id, credential_id, ...use }])
    assert.deepStrictEqual<object>(yield* statusOf(tenant, id), {
      ...fresh,
      state: "failing",
      last_leased_at: "1970-01-01T00:00:00.003Z",
      last_succeeded_at: "1970-01-01T00:00:00.001Z",
      last_failed_at: "1970-01-01T00:00:00.002Z",
      last_failure: "rejected",
      last_refused_at: "1970-01-01T00:00:00.004Z",
      last_refused_status: 400,
      last_refused_code: "invalid_value"
    })
  })

  it.effect("shows a credential of a deleted workspace as disabled (D43)", function* () {
    const tenant = yield* TestService.newTenant
    const id = createdId(yield* tenant.create({ provider: "azure", key }))
    yield* (yield* AccountRepository).deleteWorkspace(tenant.workspace_id, yield* DateTime.now)
    assert.deepStrictEqual(yield* statusOf(tenant, id), { ...fresh, state: "disabled" })
  })
})
