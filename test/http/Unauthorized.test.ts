import { assert } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Accounts } from "../../src/service/Accounts.ts"
import { formatApiKey } from "../../src/port/ApiKey.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, create, get, type Header, json } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"

const createRequest = { method: "POST", path: "/api/v1/byok", body: JSON.stringify(minimal) }

const operations = [
  { operation: "get of what is no UUID", request: { path: "/api/v1/byok/nonsense" } },
  { operation: "create of what is no JSON", request: { method: "POST", path: "/api/v1/byok", body: "{" } }
]

const noKey = "must be Bearer and a management key, but has no key"
const repeated = "must be sent once, but was sent more often"
const another = "must be Bearer and a management key, but has another scheme"
const missing: ReadonlyArray<
  readonly [name: string, headers: (tenant: Tenant) => ReadonlyArray<Header>, found?: string]
> = [
  ["no Authorization header", () => []],
  ["an empty one", () => [["Authorization", ""]], "must be Bearer and a management key, but is empty"],
  ["the scheme alone", () => [["Authorization", "Bearer"]], noKey],
  ["the scheme and a blank", () => [["Authorization", "Bearer "]], noKey],
  ["the scheme and blanks", () => [["Authorization", "bearer    "]], noKey],
  ["another scheme", ({ management_key }) => [["Authorization", `Basic ${btoa(`user:${management_key}`)}`]], another],
  ["a scheme that begins alike", ({ management_key }) => [["Authorization", `Bearers ${management_key}`]], another],
  [
    "the token without a scheme",
    ({ management_key }) => [["Authorization", management_key]],
    "must be Bearer and a management key, but has no scheme"
  ],
  ["the token in another header", ({ management_key }) => [["X-Api-Key", management_key]]],
  ["two that are valid", ({ management_key }) => [bearer(management_key), bearer(management_key)], repeated],
  ["a valid one and an unknown one", ({ management_key }) => [bearer(management_key), bearer("unknown")], repeated],
  ["an unknown one and a valid one", ({ management_key }) => [bearer("unknown"), bearer(management_key)], repeated],
  [
    "a valid one and one of another scheme",
    ({ management_key }) => [bearer(management_key), ["Authorization", "Basic eA=="]],
    repeated
  ],
  ["a valid one and an empty one", ({ management_key }) => [bearer(management_key), ["Authorization", ""]], repeated]
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

const assertInvalidKey = (answer: Answer) => {
  assertRefused(answer, "InvalidKey")
  assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="invalid_token"')
}

layerLive(TestService.layer)("401 (sections 5 and 7, D2, D3)", (it) => {
  for (const { operation, request } of operations) {
    it.effect.each(missing)(
      `Missing Authentication header on ${operation}: %s (sections 5 and 7, D2)`,
      ([, headers, found]) =>
        Effect.gen(function* () {
          const asked = TestService.send({ ...request, headers: [json, ...headers(yield* TestService.tenant)] })
          const answer = yield* TestService.storing(0, asked)
          const issues = [{ path: ["Authorization"], message: found }]
          assertRefused(answer, "MissingKey", found === undefined ? undefined : { issues })
          assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok"')
        })
    )

    it.effect.each(invalid)(`Invalid API key on ${operation}: %s (D3)`, ([, token]) =>
      Effect.gen(function* () {
        const asked = TestService.send({ ...request, headers: [json, bearer(token(yield* TestService.tenant))] })
        assertInvalidKey(yield* TestService.storing(0, asked))
      })
    )
  }

  it.effect("a revoked key is refused like an unknown one, from the next request on (D3, D42)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { account_id, get: getHere } = yield* TestService.newTenant
      const accounts = yield* Accounts
      const issued = yield* accounts.issueApiKey(account_id, { name: "soon revoked", management: true })
      const key = Redacted.value(issued.key)
      const id = createdId(yield* create(url, key, minimal))
      yield* accounts.revokeApiKey(issued.hash)
      const asked = Effect.all([create(url, key, minimal), get(url, key, id)])
      for (const answer of yield* TestService.storing(0, asked)) assertInvalidKey(answer)
      assert.strictEqual((yield* getHere(id)).status, 200)
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
      const { management_key } = yield* TestService.tenant
      for (const scheme of ["bearer", "BEARER"]) {
        const headers: ReadonlyArray<Header> = [["Authorization", `${scheme} ${management_key}`], json]
        created(yield* TestService.send({ ...createRequest, headers }))
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
      const headers: ReadonlyArray<Header> = [json, ["Content-Length", "1000"]]
      const answer = yield* TestService.send({
        method: "POST",
        path: "/api/v1/byok",
        headers: token === undefined ? headers : [bearer(token), ...headers]
      }).pipe(Effect.timeout("4 seconds"))
      assertRefused(answer, token === undefined ? "MissingKey" : "InvalidKey")
    })
  )
})
