import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { Api } from "../../src/api/Api.ts"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { create, get } from "../support/http/HttpProbe.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { assertInvalid } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

layerLive(TestService.layer)("a provider that only another version knows", (it) => {
  it.effect("is shown by get and decoded by the typed client, though create refuses it (F4)", () =>
    Effect.gen(function* () {
      const { sql, tenant, url } = yield* TestService
      const { management_key } = yield* tenant
      const made = created(yield* create(url, management_key, minimal))
      const id = CredentialId.make(String(made["id"]))
      yield* sql`UPDATE credentials SET provider = 'of-tomorrow/2' WHERE id = ${id}`
      const found = yield* get(url, management_key, id)
      assert.strictEqual(found.status, 200)
      assert.deepStrictEqual(JSON.parse(found.body), { data: { ...made, provider: "of-tomorrow/2" } })
      const client = yield* HttpApiClient.make(Api, {
        baseUrl: url,
        transformClient: HttpClient.mapRequest(HttpClientRequest.bearerToken(management_key))
      }).pipe(Effect.provide(FetchHttpClient.layer))
      assert.strictEqual((yield* client.byok.get({ params: { id } })).data.provider, "of-tomorrow/2")
      assertInvalid(yield* create(url, management_key, { ...minimal, provider: "of-tomorrow/2" }), {
        path: ["provider"],
        message: "must be a known provider slug"
      })
    })
  )
})

layerLive(TestService.layer)("an element of 300 characters in a stored list", (it) => {
  it.effect("is shown by get and list, though create refuses it (D46)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const { create, get, list } = yield* TestService.newTenant
      const long = { allowed_models: ["m".repeat(300)] }
      const made = created(yield* create(minimal))
      yield* sql`UPDATE credentials SET allowed_models = ${long.allowed_models} WHERE id = ${made["id"]}`
      const shown = { ...made, ...long }
      assert.deepStrictEqual(JSON.parse((yield* get(String(made["id"]))).body), { data: shown })
      assert.deepStrictEqual(JSON.parse((yield* list()).body), { data: [shown], total_count: 1 })
      assertInvalid(yield* create({ ...minimal, ...long }), {
        path: ["allowed_models", 0],
        message: "must have at most 255 characters"
      })
    })
  )
})
