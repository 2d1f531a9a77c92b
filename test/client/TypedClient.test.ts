import { DateTime, Effect, Fiber, Layer, Redacted, Schema } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { Api } from "../../src/contract/TenantsApi.ts"
import * as Errors from "../../src/domain/Errors.ts"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { assert, layerLive } from "../support/it.ts"
import { minimal } from "../support/http/Bodies.ts"
import { refusals } from "../support/http/Refusal.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"
import { lockTable, untilWaiting } from "../support/database/transactions.ts"

const newCredential = Schema.decodeUnknownSync(NewCredential)
const unknownId = CredentialId.make("019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11")

const clientWith = Effect.fnUntraced(function* (token: string | undefined) {
  const { url } = yield* TestService
  return yield* HttpApiClient.make(Api, {
    baseUrl: url,
    transformClient: HttpClient.mapRequest((request) =>
      token === undefined ? request : HttpClientRequest.bearerToken(request, token)
    )
  })
})

const client = Effect.gen(function* () {
  const { tenant } = yield* TestService
  return yield* clientWith((yield* tenant).management_key)
})

const create = (body: unknown) =>
  Effect.flatMap(client, ({ byok }) => byok.create({ headers: {}, payload: newCredential(body) }))

layerLive(Layer.merge(TestService.withDatabase({ queue: 1 }), FetchHttpClient.layer))("the typed client", (it) => {
  it.effect("creates and gets, with decoded fields (section 4)", function* () {
    const { byok } = yield* client
    const { body: made } = yield* create({ ...minimal, name: "n", allowed_models: ["m"] })
    assert.strictEqual(made.data.label, "sk-...AbCd")
    assert.strictEqual(made.data.name, "n")
    assert.isTrue(DateTime.isDateTime(made.data.created_at))
    assert.deepStrictEqual(yield* byok.get({ params: { id: made.data.id } }), made)
  })

  it.effect("lists, updates and deletes, with decoded fields and typed errors (L1, L2, L4, L11)", function* () {
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
  })

  /** The errors of create and get with a token. */
  const failuresOf = (token: string | undefined) =>
    Effect.flatMap(clientWith(token), ({ byok }) =>
      Effect.all([
        Effect.flip(byok.create({ headers: {}, payload: newCredential(minimal) })),
        Effect.flip(byok.get({ params: { id: unknownId } }))
      ])
    )
  const mine = Effect.flatMap(TestService.tenant, ({ management_key }) => failuresOf(management_key))

  const ordinary = TestService.tenant.pipe(
    Effect.flatMap(({ ordinaryKey }) => ordinaryKey),
    Effect.flatMap(failuresOf)
  )

  const whileFull = Effect.gen(function* () {
    const { sql } = yield* TestService
    const release = yield* lockTable(sql, "api_keys")
    const waiting = yield* Effect.forkChild(create(minimal))
    yield* untilWaiting(sql, 1)
    const errors = yield* mine
    yield* release
    yield* Fiber.join(waiting)
    return errors
  })

  it.effect.each([
    ["MissingKey", failuresOf(undefined), Errors.Unauthorized],
    ["InvalidKey", failuresOf("unknown"), Errors.Unauthorized],
    ["Forbidden", ordinary, Errors.Forbidden],
    ["InternalError", withoutTable("credentials", mine), Errors.InternalError],
    ["ServiceUnavailable", whileFull, Errors.ServiceUnavailable]
  ] as const)("has a class for %s (D2, D3, D4, D11, D14)", ([refusal, failures, type]) =>
    Effect.map(failures, (errors) => {
      for (const error of errors) {
        assert.instanceOf<object>(error, type)
        assert.nestedPropertyVal(error, "error.message", refusals[refusal][1])
      }
    })
  )
})
