import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { createdId, credentialIn, minimal, unknownId } from "../support/http/Bodies.ts"
import { get, send } from "../support/http/HttpProbe.ts"
import { assertHeaders, assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

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
  `${unknownId}%00`,
  `${unknownId}%20`,
  `${unknownId}%0A`,
  `%20${unknownId}`,
  "%zz",
  "%",
  `${unknownId};x`,
  "%zz%20;",
  "%ff",
  "%C0%AF",
  "..%2f..%2fhealth%2flive",
  `${unknownId}#x`,
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
  `/byok/${unknownId}`,
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
  `/api/v1/byok/${unknownId}/`,
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

layerLive(TestService.layer)("404 (section 7, D5, D10)", (it) => {
  it.effect("update and delete of an id that is not a UUID (D5)", () =>
    Effect.gen(function* () {
      const tenant = yield* TestService.tenant
      for (const id of ["nonsense", "a%2Fb", "%zz", "00000000-0000-0000-0000-000000000000"]) {
        assertRefused(yield* tenant.update(id, { name: "x" }), "NotFound")
        assertRefused(yield* tenant.delete(id), "NotFound")
      }
    })
  )

  it.effect.each(notUuids)("get %s: authentication comes first (D3, D4, D5)", (id) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const tenant = yield* TestService.tenant
      assertRefused(yield* tenant.get(id), "NotFound")
      assertRefused(yield* get(url, yield* tenant.ordinaryKey, id), "Forbidden")
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

  it.effect.each(noRoutes)("no route: %s, with a key and without; paths are exact (D10, D40)", (path) =>
    Effect.gen(function* () {
      const tenant = yield* TestService.tenant
      for (const method of ["GET", "POST", "DELETE"]) {
        assertRefused(yield* TestService.send({ method, path }), "NotFound")
        assertRefused(yield* tenant.send({ method, path }), "NotFound")
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
      const tenant = yield* TestService.tenant
      const id = createdId(yield* tenant.create(minimal))
      const answer = yield* tenant.send({ path: path(id) })
      assert.strictEqual(answer.status, 200)
      assert.strictEqual(credentialIn(answer)["id"], id)
      assertHeaders(answer)
    })
  )
})
