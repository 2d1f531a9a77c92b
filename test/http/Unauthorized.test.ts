import { assert } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Accounts } from "../../src/service/Accounts.ts"
import { formatApiKey } from "../../src/port/ApiKey.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, create, get, type Header, json, send } from "../support/http/HttpProbe.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"

const unknown = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"

const operations = [
  { operation: "create", request: { method: "POST", path: "/api/v1/byok", body: JSON.stringify(minimal) } },
  { operation: "get", request: { path: `/api/v1/byok/${unknown}` } },
  { operation: "get of what is no UUID", request: { path: "/api/v1/byok/nonsense" } },
  { operation: "create of what is no JSON", request: { method: "POST", path: "/api/v1/byok", body: "{" } }
]

const missing: ReadonlyArray<readonly [name: string, headers: (tenant: Tenant) => ReadonlyArray<Header>]> = [
  ["no Authorization header", () => []],
  ["an empty one", () => [["Authorization", ""]]],
  ["the scheme alone", () => [["Authorization", "Bearer"]]],
  ["the scheme and a blank", () => [["Authorization", "Bearer "]]],
  ["the scheme and blanks", () => [["Authorization", "Bearer    "]]],
  ["another scheme", ({ management_key }) => [["Authorization", `Basic ${btoa(`user:${management_key}`)}`]]],
  ["a scheme that begins alike", ({ management_key }) => [["Authorization", `Bearers ${management_key}`]]],
  ["the token without a scheme", ({ management_key }) => [["Authorization", management_key]]],
  ["the token in another header", ({ management_key }) => [["X-Api-Key", management_key]]],
  ["two that are valid", ({ management_key }) => [bearer(management_key), bearer(management_key)]],
  ["a valid one and an unknown one", ({ management_key }) => [bearer(management_key), bearer("unknown")]],
  ["an unknown one and a valid one", ({ management_key }) => [bearer("unknown"), bearer(management_key)]],
  [
    "a valid one and one of another scheme",
    ({ management_key }) => [bearer(management_key), ["Authorization", "Basic eA=="]]
  ],
  ["a valid one and an empty one", ({ management_key }) => [bearer(management_key), ["Authorization", ""]]]
]

const invalid: ReadonlyArray<readonly [name: string, token: (tenant: Tenant) => string]> = [
  ["unknown", () => formatApiKey(Buffer.alloc(32, 1), true)],
  ["of our form with a wrong checksum (D41)", () => `byok_mk_${"A".repeat(49)}`],
  ["of another form", () => "unknown"],
  ["the valid one without its last character", ({ management_key }) => management_key.slice(0, -1)],
  ["the valid one with one more", ({ management_key }) => `${management_key}0`],
  ["the valid one in capitals", ({ management_key }) => management_key.toUpperCase()],
  ["the hash of the valid one", ({ management_key_hash }) => management_key_hash],
  ["the valid one twice", ({ management_key }) => `${management_key} ${management_key}`],
  ["the valid one and a comma", ({ management_key }) => `${management_key},`],
  ["bytes that are no letters", () => "\u0080\u00ff\u00e9"],
  ["SQL", () => "' OR revoked_at IS NULL --"],
  ["10,000 characters long", () => "A".repeat(10_000)]
]

layerLive(TestService.layer)("401 (sections 5 and 7, D2, D3)", (it) => {
  for (const { operation, request } of operations) {
    it.effect.each(missing)(`Missing Authentication header on ${operation}: %s (sections 5 and 7, D2)`, ([, headers]) =>
      Effect.gen(function* () {
        const { rowCount, tenant, url } = yield* TestService
        const before = yield* rowCount
        const answer = yield* send(url, { ...request, headers: [json, ...headers(yield* tenant)] })
        assertRefused(answer, "MissingKey")
        assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok"')
        assert.strictEqual(yield* rowCount, before)
      })
    )

    it.effect.each(invalid)(`Invalid API key on ${operation}: %s (D3)`, ([, token]) =>
      Effect.gen(function* () {
        const { rowCount, tenant, url } = yield* TestService
        const before = yield* rowCount
        const answer = yield* send(url, { ...request, headers: [json, bearer(token(yield* tenant))] })
        assertRefused(answer, "InvalidKey")
        assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="invalid_token"')
        assert.strictEqual(yield* rowCount, before)
      })
    )
  }

  it.effect("a revoked key is refused like an unknown one, from the next request on (D3, D42)", () =>
    Effect.gen(function* () {
      const { rowCount, url } = yield* TestService
      const { account_id, management_key } = yield* TestService.newTenant
      const accounts = yield* Accounts
      const issued = yield* accounts.issueApiKey(account_id, { name: "soon revoked", management: true })
      const key = Redacted.value(issued.key)
      const id = createdId(yield* create(url, key, minimal))
      yield* accounts.revokeApiKey(issued.hash)
      const before = yield* rowCount
      for (const answer of [yield* create(url, key, minimal), yield* get(url, key, id)]) {
        assertRefused(answer, "InvalidKey")
        assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="invalid_token"')
      }
      assert.strictEqual(yield* rowCount, before)
      assert.strictEqual((yield* get(url, management_key, id)).status, 200)
    })
  )

  it.effect("a key revoked in the database, behind the service's back, is refused just as soon (D42)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const { account_id, create } = yield* TestService.newTenant
      created(yield* create(minimal))
      yield* sql`UPDATE api_keys SET revoked_at = now() WHERE account_id = ${account_id}`
      assertRefused(yield* create(minimal), "InvalidKey")
    })
  )

  it.effect("the scheme may be in any case (RFC 9110, section 11.1)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { management_key } = yield* TestService.tenant
      for (const scheme of ["bearer", "BEARER"]) {
        const headers: ReadonlyArray<Header> = [["Authorization", `${scheme} ${management_key}`], json]
        created(yield* send(url, { method: "POST", path: "/api/v1/byok", headers, body: JSON.stringify(minimal) }))
      }
    })
  )

  it.effect.each(["sk-or-v1-imported~key+/=", "imported key, with a comma", "импортированный-clé-鍵"])(
    "a key of another form that was imported by hash works: %s (D24, D41)",
    (token) =>
      Effect.gen(function* () {
        const { sql, url } = yield* TestService
        const { account_id } = yield* TestService.newTenant
        yield* sql`
          INSERT INTO api_keys (hash, account_id, name, management, created_at)
          VALUES (sha256(convert_to(${token}, 'UTF8')), ${account_id}, 'imported', true, now())`
        created(yield* create(url, Buffer.from(token).toString("latin1"), minimal))
      })
  )

  it.effect.each(["unknown", undefined])("is decided before the body is read: token %s (D4)", (token) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const headers: ReadonlyArray<Header> = [json, ["Content-Length", "1000"]]
      const answer = yield* send(url, {
        method: "POST",
        path: "/api/v1/byok",
        headers: token === undefined ? headers : [bearer(token), ...headers]
      }).pipe(Effect.timeout("4 seconds"))
      assertRefused(answer, token === undefined ? "MissingKey" : "InvalidKey")
    })
  )
})
