import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Accounts } from "../../src/service/Accounts.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, defaults, minimal } from "../support/http/Bodies.ts"
import { assertHeaders } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const uuidV7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

layerLive(TestService.layer)("create answers 201 (section 4.1, D1)", (it) => {
  it.effect("with the credential, every omitted field at its default (sections 2.1 and 4.1, D1, D12, D20, D32)", () =>
    Effect.gen(function* () {
      const { create, workspace_id } = yield* TestService.newTenant
      const answer = yield* create(minimal)
      assert.strictEqual(answer.status, 201)
      assertHeaders(answer)
      const { created_at, id, ...rest } = created(answer)
      assert.deepStrictEqual(rest, {
        ...defaults,
        workspace_id,
        provider: "openai",
        label: "sk-...AbCd",
        sort_order: 0
      })
      assert.isString(id)
      assert.isString(created_at)
      assert.deepStrictEqual(Object.keys(JSON.parse(answer.body) as object), ["data"])
    })
  )

  it.effect("with every field as it was given (section 4.1, rule 5)", () =>
    Effect.gen(function* () {
      const { account_id, create, management_key_hash } = yield* TestService.newTenant
      const { workspace_id } = yield* (yield* Accounts).createWorkspace(account_id, "another")
      const given = {
        provider: "azure",
        name: "Production, Europe",
        workspace_id,
        allowed_api_key_hashes: [management_key_hash],
        allowed_models: ["a/model", "another/model:beta"],
        allowed_user_ids: ["user-1"],
        declared_region: "europe",
        declared_zdr: true,
        disabled: true,
        is_required: true,
        is_fallback: false,
        is_byok_only: true
      }
      const answer = yield* create({ ...given, key: "azure-0123456789-0123456789-wXyZ" })
      const { created_at: _created_at, id: _id, ...rest } = created(answer)
      assert.deepStrictEqual(rest, { ...given, label: "azu...wXyZ", sort_order: 0 })
    })
  )

  it.effect("and get answers 200 with the same body, disabled or not (sections 3 and 4.2, D44)", () =>
    Effect.gen(function* () {
      const { create, get } = yield* TestService.newTenant
      const made = yield* create({ ...minimal, name: "🔑", disabled: true })
      const found = yield* get(createdId(made))
      assert.strictEqual(found.status, 200)
      assert.strictEqual(found.body, made.body)
      assertHeaders(found)
    })
  )

  it.effect("and HEAD is answered like get, without the body (section 4.2)", () =>
    Effect.gen(function* () {
      const { create, get, send } = yield* TestService.newTenant
      const id = createdId(yield* create(minimal))
      const found = yield* get(id)
      const head = yield* send({ method: "HEAD", path: `/api/v1/byok/${id}` })
      assert.strictEqual(head.status, 200)
      assert.strictEqual(head.body, "")
      assert.strictEqual(head.headers["content-length"], found.headers["content-length"])
      assertHeaders(head)
    })
  )

  it.effect(
    "id is a UUID of version 7 and created_at is UTC in milliseconds, both of the time of creation (D33, D34)",
    () =>
      Effect.gen(function* () {
        const { create } = yield* TestService.newTenant
        const before = Date.now()
        const { created_at, id } = created(yield* create(minimal))
        const after = Date.now()
        assert.match(String(id), uuidV7)
        assert.match(String(created_at), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
        const times = [Date.parse(String(created_at)), Number.parseInt(String(id).replace("-", "").slice(0, 12), 16)]
        for (const time of times) assert.isTrue(time >= before && time <= after, `${before} <= ${time} <= ${after}`)
      })
  )

  it.effect("the next sort_order is one more than the largest, even if a row was deleted (D32)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const { create } = yield* TestService.newTenant
      const ids: Array<string> = []
      for (let n = 0; n < 3; n++) ids.push(createdId(yield* create(minimal)))
      yield* sql`DELETE FROM credentials WHERE id = ${ids[0] ?? ""}`
      assert.strictEqual(created(yield* create(minimal))["sort_order"], 3)
    })
  )

  it.effect("the same request twice creates two credentials (section 4.1)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.newTenant
      const made = yield* TestService.storing(2, Effect.all([create(minimal), create(minimal)]))
      assert.strictEqual(new Set(made.map(createdId)).size, 2)
    })
  )
})
