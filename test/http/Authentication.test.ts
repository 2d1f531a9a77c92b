import { Context, Effect, Option, Redacted } from "effect"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { formatApiKey } from "../../src/runtime/ApiKey.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, create, creation, exchange, get, type Header, json, type Request } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Parts, type Tenant, TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const operations: ReadonlyArray<Request> = [
  { path: "/api/v1/byok/nonsense" },
  { path: "/api/v1/byok?limit=0" },
  { method: "POST", path: "/api/v1/byok", body: "{", headers: [["Idempotency-Key", "a b"]] },
  { method: "POST", path: "/api/v1/byok/plan", body: "{" },
  { method: "PATCH", path: "/api/v1/byok/nonsense", body: "{" },
  { method: "DELETE", path: "/api/v1/byok/nonsense" },
  { path: "/api/v1/byok/nonsense/status" }
]

const noKey = "must be Bearer and a management key, but has no key"
const repeated = "must be sent once, but was sent more often"
const another = "must be Bearer and a management key, but has another scheme"
const missing: ReadonlyArray<
  readonly [name: string, headers: (tenant: Tenant) => ReadonlyArray<Header>, found?: string]
> = [
  ["no Authorization header", () => []],
  ["an empty Authorization header", () => [["Authorization", ""]], "must be Bearer and a management key, but is empty"],
  ["the Bearer scheme without a token", () => [["Authorization", "Bearer"]], noKey],
  ["the Bearer scheme and blanks", () => [["Authorization", "bearer    "]], noKey],
  [
    "another scheme than Bearer",
    ({ management_key }) => [["Authorization", `Basic ${btoa(`user:${management_key}`)}`]],
    another
  ],
  [
    "a scheme that begins with Bearer",
    ({ management_key }) => [["Authorization", `Bearers ${management_key}`]],
    another
  ],
  [
    "the token without a scheme",
    ({ management_key }) => [["Authorization", management_key]],
    "must be Bearer and a management key, but has no scheme"
  ],
  ["the token in another header", ({ management_key }) => [["X-Api-Key", management_key]]],
  [
    "two valid Authorization headers",
    ({ management_key }) => [bearer(management_key), bearer(management_key)],
    repeated
  ],
  ["an unknown key and a valid one", ({ management_key }) => [bearer("unknown"), bearer(management_key)], repeated],
  [
    "a valid Authorization header and an empty one",
    ({ management_key }) => [bearer(management_key), ["Authorization", ""]],
    repeated
  ]
]

const invalid: ReadonlyArray<readonly [name: string, token: (tenant: Tenant) => string]> = [
  ["unknown", () => formatApiKey(Buffer.alloc(32, 1), "management")],
  ["in byok's own format with a wrong checksum (D41)", () => `byok_mk_${"A".repeat(49)}`],
  ["in another format", () => "unknown"],
  ["the valid one in capitals", ({ management_key }) => management_key.toUpperCase()],
  ["the hash of the valid one", ({ management_key_hash }) => management_key_hash],
  ["the valid one twice", ({ management_key }) => `${management_key} ${management_key}`],
  ["the valid one and a comma", ({ management_key }) => `${management_key},`],
  ["made of bytes above 127", () => "\u0080\u00ff\u00e9"],
  ["10,000 characters long", () => "A".repeat(10_000)]
]

const assertInvalidKey = (answer: Answer) => {
  assertRefused(answer, "InvalidKey")
  assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="invalid_token"')
}

const assertForbidden = (answer: Answer) => {
  assertRefused(answer, "Forbidden")
  assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="insufficient_scope"')
}

const ordinaryKey = Effect.flatMap(TestService.tenant, ({ ordinaryKey }) => ordinaryKey)

/** Sends only the head of a create: an answer then comes without reading the body. */
const createWithoutBody = Effect.fnUntraced(function* (token: string, length: string) {
  const { url } = yield* TestService
  return yield* exchange(url, creation(token, undefined, [["Content-Length", length]]))
})

layerLive(TestService.layer)("authentication (sections 5 and 7)", (it) => {
  it.effect.each(missing)("answers 401 to %s before any other check (D2)", function* ([, headers, found]) {
    const given = headers(yield* TestService.tenant)
    const issues = [{ path: ["Authorization"], message: found }]
    for (const request of operations) {
      const answer = yield* TestService.send({ ...request, headers: [json, ...given, ...(request.headers ?? [])] })
      assertRefused(answer, "MissingKey", found === undefined ? undefined : { issues })
      assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok"')
    }
  })

  it.effect.each(invalid)("answers 401 to a key that is %s, whatever else is wrong (D3)", function* ([, token]) {
    const given = bearer(token(yield* TestService.tenant))
    for (const request of operations) {
      const headers = [json, given, ...(request.headers ?? [])]
      assertInvalidKey(yield* TestService.send({ ...request, headers }))
    }
  })

  it.effect("answers 401 to a revoked key, as to an unknown one, from the next request on (D3, D42)", function* () {
    const { sql, url } = yield* TestService
    const accounts = yield* Accounts
    const { account_id, create: createHere, get: getHere } = yield* TestService.newTenant
    const issued = yield* accounts.issueApiKey(account_id, { name: "soon revoked", role: "management" })
    const key = Redacted.value(issued.key)
    const once: ReadonlyArray<Header> = [["Idempotency-Key", "once"]]
    const id = createdId(yield* create(url, key, minimal, once))
    yield* accounts.revokeApiKey(issued.hash)
    const asked = Effect.all([create(url, key, minimal), create(url, key, minimal, once), get(url, key, id)])
    for (const answer of yield* TestService.storing(0, asked)) assertInvalidKey(answer)
    assert.strictEqual((yield* getHere(id)).status, 200)
    // A revocation by SQL takes effect as soon.
    yield* sql`UPDATE api_keys SET revoked_at = now() WHERE account_id = ${account_id}`
    assertInvalidKey(yield* createHere(minimal))
  })

  it.effect("answers 401 to a missing or unknown key before it reads the body (D4)", function* () {
    assertInvalidKey(yield* Effect.timeout(createWithoutBody("unknown", "1000"), "4 seconds"))
    const issues = [{ path: ["Authorization"], message: noKey }]
    assertRefused(yield* Effect.timeout(createWithoutBody("", "1000"), "4 seconds"), "MissingKey", { issues })
  })

  it.effect("accepts the Bearer scheme in any case (RFC 9110, section 11.1)", function* () {
    const { management_key } = yield* TestService.tenant
    for (const scheme of ["bearer", "BEARER"]) {
      const headers: ReadonlyArray<Header> = [["Authorization", `${scheme} ${management_key}`], json]
      const body = JSON.stringify(minimal)
      created(yield* TestService.send({ method: "POST", path: "/api/v1/byok", headers, body }))
    }
  })

  it.effect.each(["imported key, with a comma", "импортированный-clé-鍵"])(
    "accepts a key of another format whose hash was imported: %s (D24, D41)",
    function* (token) {
      const { sql, url } = yield* TestService
      const { account_id } = yield* TestService.newTenant
      yield* sql`
          INSERT INTO api_keys (hash, account_id, name, role, created_at)
          VALUES (sha256(convert_to(${token}, 'UTF8')), ${account_id}, 'imported', 'management', now())`
      created(yield* create(url, Buffer.from(token).toString("latin1"), minimal))
    }
  )

  it.effect.each([
    ["a valid body", minimal],
    ["no JSON", "{"],
    ["a body over the limit", "x".repeat(300_000)]
  ])("answers 403 to a create with an ordinary key and %s, and stores no row (T7)", function* ([, body]) {
    const { url } = yield* TestService
    assertForbidden(yield* TestService.storing(0, create(url, yield* ordinaryKey, body)))
  })

  it.effect.each(["1000", "10737418240"])(
    "answers 403 to an ordinary key before it reads the body: %s bytes announced, none sent (D4, T7)",
    function* (length) {
      assertForbidden(yield* Effect.timeout(createWithoutBody(yield* ordinaryKey, length), "4 seconds"))
    }
  )
})

/** A build that treats every live key as a management key. */
const everyKeyManages = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const { find, ownedBy } = Context.get(parts, ApiKeys)
  const managing: typeof find = (hash) =>
    Effect.map(
      find(hash),
      Option.map((key) => ({ ...key, role: "management" as const }))
    )
  return Context.add(parts, ApiKeys, { find: managing, ownedBy })
})

layerLive(TestService.layerWith({ parts: everyKeyManages }))("control of the refusals of ordinary keys (T7)", (it) => {
  it.effect("a build that accepts ordinary keys on create stores a row and waits for the body (control)", function* () {
    const { url } = yield* TestService
    created(yield* TestService.storing(1, create(url, yield* ordinaryKey, minimal)))
    const answer = yield* Effect.timeoutOption(createWithoutBody(yield* ordinaryKey, "1000"), "300 millis")
    assert.isTrue(Option.isNone(answer))
  })
})
