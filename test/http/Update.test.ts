import { Effect } from "effect"
import { eventsIn } from "../support/database/auditEntries.ts"
import { createdId, credentialIn, minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const otherKey = "sk-9876543210-9876543210-WxYz"

layerLive(TestService.layer)("PATCH /api/v1/byok/{id}", (it) => {
  it.effect(
    "audit events of updates name the changed fields, even a region cleared by a new key, but no values (L10, D29)",
    function* () {
      const { sql } = yield* TestService
      const tenant = yield* TestService.newTenant
      const { account_id, create, delete: remove, update, workspace_id } = tenant
      const regional = JSON.stringify({ api_key: minimal.key, region: "us" })
      const credential_id = createdId(yield* create({ ...minimal, key: regional }))
      const { label: before, provider } = credentialIn(yield* update(credential_id, { name: "canary" }))
      const { label } = credentialIn(yield* update(credential_id, { key: otherKey, allowed_models: ["canary"] }))
      assert.notStrictEqual(before, label)
      yield* remove(credential_id)
      yield* remove(credential_id)
      const events = (yield* eventsIn(sql)).filter((event) => "credential_id" in event).slice(-4)
      const actor = { kind: "api_key", api_key_hash: tenant.management_key_hash }
      const ids = { account_id, workspace_id, credential_id }
      const rest = { ...ids, provider, label, actor }
      assert.deepStrictEqual<ReadonlyArray<unknown>>(events, [
        { action: "credential.update", revision: 2, fields: ["name"], ...rest, label: before },
        { action: "credential.update", revision: 3, fields: ["key", "allowed_models", "declared_region"], ...rest },
        { action: "credential.rotate", key_version: 2, ...rest },
        { action: "credential.delete", ...rest }
      ])
    }
  )

  it.effect("stores all concurrent updates of one credential, one after the other (L9)", function* () {
    const { create, get, update } = yield* TestService.tenant
    const id = createdId(yield* create(minimal))
    const bodies = [{ name: "n" }, { disabled: true }, { allowed_models: ["m"] }, { declared_zdr: true }]
    const answers = yield* Effect.forEach(bodies, (body) => update(id, body), { concurrency: "unbounded" })
    for (const { body, status } of answers) assert.strictEqual(status, 200, body)
    const stored = { name: "n", disabled: true, allowed_models: ["m"], declared_zdr: true }
    assert.deepInclude(credentialIn(yield* get(id)), stored)
  })
})
