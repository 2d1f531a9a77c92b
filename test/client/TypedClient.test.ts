import { DateTime, Effect, Layer, Redacted, Schema } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { Api } from "../../src/contract/TenantsApi.ts"
import * as Errors from "../../src/domain/Errors.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { assert, layerLive } from "../support/it.ts"
import { minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"

const newCredential = Schema.decodeUnknownSync(NewCredential)

const clientWith = Effect.fnUntraced(function* (token: string) {
  const { url } = yield* TestService
  return yield* HttpApiClient.make(Api, {
    baseUrl: url,
    transformClient: HttpClient.mapRequest(HttpClientRequest.bearerToken(token))
  })
})

layerLive(Layer.merge(TestService.layer, FetchHttpClient.layer))("the typed client", (it) => {
  it.effect("creates and gets credentials, with decoded fields (section 4)", function* () {
    const { byok } = yield* clientWith((yield* TestService.tenant).management_key)
    const payload = newCredential({ ...minimal, name: "n", allowed_models: ["m"] })
    const { body: made } = yield* byok.create({ headers: {}, payload })
    assert.strictEqual(made.data.label, "sk-...AbCd")
    assert.strictEqual(made.data.name, "n")
    assert.isTrue(DateTime.isDateTime(made.data.created_at))
    assert.deepStrictEqual(yield* byok.get({ params: { id: made.data.id } }), made)
  })

  it.effect("lists, updates and deletes credentials, with decoded fields and errors (L1, L2, L4, L11)", function* () {
    const { management_key } = yield* TestService.newTenant
    const { byok } = yield* clientWith(management_key)
    const made = yield* Effect.forEach([0, 1, 2], (n) =>
      Effect.map(
        byok.create({ headers: {}, payload: newCredential({ ...minimal, name: `n${n}` }) }),
        ({ body }) => body
      )
    )
    const id = made[1]?.data.id ?? assert.fail("nothing created")
    const listed = yield* byok.list({ query: { offset: 1, limit: 1, provider: "openai" } })
    assert.deepStrictEqual(listed, { data: made.slice(1, 2).map(({ data }) => data), total_count: 3 })
    assert.lengthOf((yield* byok.list({ query: {} })).data, 3)

    const { data } = yield* byok.update({ params: { id }, payload: { key: Redacted.make("k"), name: null } })
    assert.deepStrictEqual(data, { ...listed.data[0], label: "***...***", name: null } as typeof data)
    const conflict = byok.update({ params: { id }, payload: { is_fallback: true, is_required: true } })
    assert.instanceOf(yield* Effect.flip(conflict), Errors.InvalidParams)

    assert.deepStrictEqual(yield* byok.delete({ params: { id } }), { deleted: true })
    assert.instanceOf(yield* Effect.flip(byok.delete({ params: { id } })), Errors.NotFound)
    assert.instanceOf(yield* Effect.flip(byok.update({ params: { id }, payload: {} })), Errors.NotFound)
    assert.strictEqual((yield* byok.list({ query: {} })).total_count, 2)
    const unknown = yield* clientWith("unknown")
    assert.instanceOf(yield* Effect.flip(unknown.byok.list({ query: {} })), Errors.Unauthorized)
  })
})
