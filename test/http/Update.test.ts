import { eventsIn } from "../support/database/auditEntries.ts"
import { created, createdId, credentialIn, defaults, minimal } from "../support/http/Bodies.ts"
import { assertHeaders, assertInvalid, assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const otherKey = "sk-9876543210-9876543210-WxYz"

layerLive(TestService.layer)("PATCH /api/v1/byok/{id}", (it) => {
  it.effect("answers the changed credential, as get does afterwards (L1)", function* () {
    const { create, get, list, management_key_hash, update } = yield* TestService.newTenant
    const before = created(yield* create({ ...minimal, provider: "azure" }))
    const changes = {
      name: "new",
      disabled: true,
      is_required: true,
      is_byok_only: true,
      declared_zdr: false,
      declared_region: "us",
      allowed_api_key_hashes: [management_key_hash],
      allowed_models: ["m", "m"],
      allowed_user_ids: []
    }
    const id = String(before["id"])
    assert.deepStrictEqual(credentialIn(yield* update(id, before)), before)
    const answer = yield* update(id, { ...before, ...changes, added_later: {}, key: otherKey })
    assert.strictEqual(answer.status, 200)
    assertHeaders(answer)
    const after = { ...before, ...changes, label: "sk-...WxYz" }
    assert.deepStrictEqual(credentialIn(answer), after)
    assert.strictEqual((yield* get(id)).body, answer.body)
    assert.deepStrictEqual(JSON.parse((yield* list()).body), { data: [after], total_count: 1 })
    const { disabled: _, is_byok_only: __, is_fallback: ___, is_required: ____, ...cleared } = defaults
    assert.deepStrictEqual(credentialIn(yield* update(id, cleared)), { ...after, ...cleared })
  })

  it.effect(
    "records names of members and versions, including a region cleared by a new key, but no value (L10, D29)",
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

  it.effect("refuses what create refuses, at the member in the request (L5, D7, D45)", function* () {
    const { create, get, send, update } = yield* TestService.newTenant
    const id = createdId(yield* create({ ...minimal, is_required: true }))
    const before = (yield* get(id)).body
    assertInvalid(yield* update(id, { is_fallback: true, name: "x" }), {
      path: ["is_fallback"],
      message: "cannot be combined with is_required"
    })
    for (const [body, message] of [
      ["{", "must be valid JSON"],
      ["[]", "must be a JSON object"],
      ["", "must be a JSON object"]
    ] as const) {
      assertInvalid(yield* update(id, body), { path: [], message })
    }
    assertInvalid(yield* send({ method: "PATCH", path: `/api/v1/byok/${id}`, body: "{}" }), {
      path: [],
      message: "must be sent as application/json"
    })
    assertRefused(yield* update(id, { name: "x".repeat(256 * 1024) }), "PayloadTooLarge")
    assert.strictEqual((yield* get(id)).body, before)
  })
})
