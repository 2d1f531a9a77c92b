import { assert } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Accounts } from "../../src/service/Accounts.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { createdId, credentialIn, minimal } from "../support/http/Bodies.ts"
import { bearer, get, send } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertHeaders, assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const unknown = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"

const notUuids = [
  "nonsense",
  "0",
  "null",
  "undefined",
  "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b1",
  "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b111",
  "019ad5a06c1e7b3a9f523a1c5d7e9b11",
  "{019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11}",
  "019ad5a0-6c1e-0b3a-9f52-3a1c5d7e9b11",
  "019ad5a0-6c1e-7b3a-7f52-3a1c5d7e9b11",
  "00000000-0000-0000-0000-000000000000",
  "ffffffff-ffff-ffff-ffff-ffffffffffff",
  "g19ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11",
  `${unknown}%00`,
  `${unknown}%20`,
  `${unknown}%0A`,
  `%20${unknown}`,
  "%zz",
  "%",
  `${unknown};x`,
  "%zz%20;",
  "%ff",
  "%C0%AF",
  "..%2f..%2fhealth%2flive",
  `${unknown}#x`,
  "%2F",
  "%2e%2e",
  ".",
  "*",
  ":id",
  "'%20OR%20true--",
  "a".repeat(10_000)
]

const noRoutes = [
  "//",
  "/#",
  "/api",
  "/api/v1",
  "/api/v1/byokk",
  "/api/v1/byok/a/b",
  "/api/v2/byok",
  "/byok",
  `/byok/${unknown}`,
  "/health",
  "/openapi.yaml",
  "/docs/index.html",
  "/docs/",
  "/Docs",
  "/docs#x",
  "/API/v1/byok",
  "/api/v1/Byok",
  "//api/v1/byok",
  "/api//v1/byok",
  "/api/v1/byok/",
  "/api/v1/byok//",
  "/api/v1/byok#f",
  `/api/v1/byok/${unknown}/`,
  "/health/live/",
  "/openapi.json/",
  "/.env",
  "/api/v1/accounts",
  "/api/v1/workspaces",
  "/api/v1/api-keys",
  "/api/v1/keyring",
  "/api/v1/byok;x",
  "/health/live;x",
  "/%",
  "/%00",
  "/api/v1/%62yok/../../..",
  "http://byok.test/nothing",
  "http:///",
  "*",
  `/${"a".repeat(10_000)}`
]

const withoutRequestId = ({ headers: { "x-request-id": _id, date: _date, ...headers }, ...rest }: Answer) => ({
  ...rest,
  headers
})

layerLive(TestService.layer)("404 (section 7, D5, D10)", (it) => {
  it.effect(
    "an id that is not a UUID, another account's, or unknown: the same answer except the request id (section 7, D5, T6)",
    () =>
      Effect.gen(function* () {
        const { get } = yield* TestService.tenant
        const stranger = yield* TestService.newTenant
        const foreign = createdId(yield* stranger.create(minimal))
        const answers = yield* Effect.forEach(["nonsense", foreign, unknown], (id) => get(id))
        for (const answer of answers) {
          assertRefused(answer, "NotFound")
          assert.deepStrictEqual(withoutRequestId(answer), withoutRequestId(answers[0] ?? answer))
        }
        assert.strictEqual(new Set(answers.map(({ headers }) => headers["x-request-id"])).size, 3)
      })
  )

  it.effect.each(notUuids)("get %s: authentication comes first (D3, D4, D5)", (id) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { account_id, management_key } = yield* TestService.tenant
      const ordinary = yield* (yield* Accounts).issueApiKey(account_id, { name: "ordinary", management: false })
      assertRefused(yield* get(url, management_key, id), "NotFound")
      assertRefused(yield* get(url, Redacted.value(ordinary.key), id), "Forbidden")
      assertRefused(yield* get(url, "unknown", id), "InvalidKey")
      assertRefused(yield* send(url, { path: `/api/v1/byok/${id}` }), "MissingKey")
    })
  )

  it.effect("a semicolon in an id does not start a query: not found (D5)", () =>
    Effect.gen(function* () {
      const { create, get } = yield* TestService.tenant
      const id = createdId(yield* create(minimal))
      assertRefused(yield* get(`${id};x`), "NotFound")
      assert.strictEqual((yield* get(`${id}?;x`)).status, 200)
    })
  )

  it.effect("get of a workspace's or an account's id (section 4.2)", () =>
    Effect.gen(function* () {
      const { account_id, get, workspace_id } = yield* TestService.tenant
      for (const id of [account_id, workspace_id]) assertRefused(yield* get(id), "NotFound")
    })
  )

  it.effect("get of a deleted credential (section 7)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const { create, get } = yield* TestService.tenant
      const id = createdId(yield* create(minimal))
      yield* sql`DELETE FROM credentials WHERE id = ${id}`
      assertRefused(yield* get(id), "NotFound")
    })
  )

  it.effect.each(noRoutes)("no route: %s, with a key and without; paths are exact (D10, D40)", (path) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { management_key } = yield* TestService.tenant
      for (const method of ["GET", "POST", "DELETE"]) {
        assertRefused(yield* send(url, { method, path }), "NotFound")
        assertRefused(yield* send(url, { method, path, headers: [bearer(management_key)] }), "NotFound")
      }
    })
  )
})

layerLive(TestService.layer)("200 instead of 404", (it) => {
  it.effect.each([
    { form: "in capitals", path: (id: string) => `/api/v1/byok/${id.toUpperCase()}` },
    { form: "with a query", path: (id: string) => `/api/v1/byok/${id}?workspace_id=x&id=y` },
    { form: "percent-encoded", path: (id: string) => `/api/v1/byok/${id.replaceAll("-", "%2D")}` },
    { form: "in absolute form", path: (id: string) => `http://elsewhere.test/api/v1/byok/${id}` }
  ])("an id $form is found (section 4.2)", ({ path }) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { create, management_key } = yield* TestService.tenant
      const id = createdId(yield* create(minimal))
      const answer = yield* send(url, { path: path(id), headers: [bearer(management_key)] })
      assert.strictEqual(answer.status, 200)
      assert.strictEqual(credentialIn(answer)["id"], id)
      assertHeaders(answer)
    })
  )
})
