import { connect } from "node:net"
import { Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { makeRouting, routableUrl } from "../../src/http/Routing.ts"
import { createdId, credentialIn, minimal, unknownId } from "../support/http/Bodies.ts"
import { get, json, render, send } from "../support/http/HttpProbe.ts"
import { assertHeaders, assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, it, layerLive } from "../support/it.ts"

const collection = "/api/v1/byok"

/** test/domain/Identifiers.test.ts has the forms of a UUID. */
const notUuids = [
  "nonsense",
  "plan",
  "019ad5a06c1e7b3a9f523a1c5d7e9b11",
  "00000000-0000-0000-0000-000000000000",
  `${unknownId}%00`,
  `${unknownId}%20`,
  `${unknownId};x`,
  `${unknownId}#x`,
  "%zz",
  "%",
  "%zz%20;",
  "%ff",
  "%C0%AF",
  "..%2f..%2fhealth%2flive",
  "%2F",
  "%2e%2e",
  ".",
  "*",
  ":id",
  "a".repeat(10_000)
]

const noRoutes = [
  "//",
  "/#",
  "/api/v1",
  "/api/v1/byokk",
  "/api/v1/byok/a/b",
  "/api/v2/byok",
  `/byok/${unknownId}`,
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
  "http://byok.test/api/v1/../v1/byok",
  "http://byok.test/api/v1/byok/",
  "http://byok.test/api/v1/byok#f",
  "http:///",
  "*",
  `/${"a".repeat(10_000)}`
]

const others = ["PUT", "OPTIONS", "TRACE", "PROPFIND", "QUERY"]
const ofCollection = "GET, HEAD, POST"
const ofItem = "GET, HEAD, PATCH, DELETE"

const wrongMethods: ReadonlyArray<readonly [method: string, path: string, allow: string]> = [
  ...["PATCH", "DELETE", ...others].map((method) => [method, collection, ofCollection] as const),
  ...["POST", ...others].map((method) => [method, `${collection}/${unknownId}`, ofItem] as const),
  ...["/", "/health/live", "/health/ready", "/docs", "/openapi.json"].flatMap((path) =>
    ["POST", "PATCH", "DELETE", "PUT"].map((method) => [method, path, "GET, HEAD"] as const)
  ),
  ...["/keys", "/keys/app.js", "/api/links/v1/link"].map((path) => ["PUT", path, "GET, HEAD"] as const),
  ["POST", "/api/v1/byok/order", "GET, HEAD, PUT, PATCH, DELETE"],
  ["PUT", "/api/v1/byok/events", "GET, HEAD, PATCH, DELETE"],
  ["PUT", "/api/v1/byok/plan", "GET, HEAD, POST, PATCH, DELETE"],
  ["PUT", `/api/v1/byok/${unknownId}/status`, "GET, HEAD"],
  ["PUT", "/api/v1/byok/nonsense", ofItem],
  ["PUT", "/api/v1/byok/%zz", ofItem],
  ["PUT", `/api/v1/byok/${"a".repeat(10_000)}`, ofItem],
  ["PUT", "http://elsewhere.test/api/v1/byok", ofCollection],
  ["PUT", "/api/v1/byok?method=POST", ofCollection]
]

it("a request target in absolute form is routed by its path (RFC 9112, section 3.2.2)", () => {
  for (const path of [...noRoutes, collection, `${collection}?limit=1`, `${collection}/%zz`, "/"]) {
    if (path.startsWith("/")) assert.strictEqual(routableUrl(`http://byok.test${path}`), routableUrl(path), path)
  }
  assert.strictEqual(routableUrl("HTTPS://byok.test"), "/")
  assert.strictEqual(routableUrl("http://byok.test?a"), "/?a")
})

const answer = Effect.succeed(HttpServerResponse.empty())

it.effect("routeOf returns the template of every added route that matches a request, without ids", function* () {
  const { makeRouter, methodsOf, routeOf } = makeRouting(() => true)
  const router = yield* makeRouter
  assert.isUndefined(routeOf("GET", `${collection}/${unknownId}`), "control")
  yield* router.add("GET", `${collection}/:id`, answer)
  yield* router.addAll([
    HttpRouter.route("POST", `${collection}/plan`, answer),
    HttpRouter.route("*", "/any/:thing", answer)
  ])
  assert.strictEqual(routeOf("GET", `${collection}/${unknownId}?x=${unknownId}`), `${collection}/:id`)
  assert.strictEqual(routeOf("GET", routableUrl(`http://byok.test${collection}/x`)), `${collection}/:id`)
  assert.strictEqual(routeOf("HEAD", `${collection}/${unknownId}`), `${collection}/:id`)
  assert.strictEqual(routeOf("POST", `${collection}/plan`), `${collection}/plan`)
  assert.strictEqual(routeOf("GET", `${collection}/plan`), `${collection}/:id`)
  assert.strictEqual(routeOf("PATCH", `/any/${unknownId}`), "/any/:thing")
  assert.deepStrictEqual(methodsOf(`${collection}/plan`), ["GET", "HEAD", "POST"])
  assert.isUndefined(routeOf("GET", `/${unknownId}`))
  assert.throws(() => router.prefixed("/other"), "whole path")
})

layerLive(TestService.layer)("the path of a request (section 7, D5, D10)", (it) => {
  it.effect.each(notUuids)('answers 404 to the invalid id "%s", but authenticates first (D3, D4, D5)', function* (id) {
    const { url } = yield* TestService
    const tenant = yield* TestService.tenant
    assertRefused(yield* tenant.get(id), "NotFound")
    assertRefused(yield* tenant.update(id, { name: "x" }), "NotFound")
    assertRefused(yield* tenant.delete(id), "NotFound")
    assertRefused(yield* get(url, yield* tenant.ordinaryKey, id), "Forbidden")
    assertRefused(yield* get(url, "unknown", id), "InvalidKey")
    assertRefused(yield* send(url, { path: `/api/v1/byok/${id}` }), "MissingKey")
  })

  it.effect.each(noRoutes)("answers 404 to the unknown path %s, with a key and without (D10, D40)", function* (path) {
    const tenant = yield* TestService.tenant
    for (const method of ["GET", "POST", "DELETE"]) {
      assertRefused(yield* TestService.send({ method, path }), "NotFound")
      assertRefused(yield* tenant.send({ method, path }), "NotFound")
    }
  })

  it.effect.each([
    { form: "in capitals", path: (id: string) => `/api/v1/byok/${id.toUpperCase()}` },
    { form: "with a query", path: (id: string) => `/api/v1/byok/${id}?workspace_id=x&id=y` },
    { form: "percent-encoded", path: (id: string) => `/api/v1/byok/${id.replaceAll("-", "%2D")}` },
    { form: "in absolute form", path: (id: string) => `http://elsewhere.test/api/v1/byok/${id}` }
  ])("finds a credential by an id $form (section 4.2)", function* ({ path }) {
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    const answer = yield* tenant.send({ path: path(id) })
    assert.strictEqual(answer.status, 200)
    assert.strictEqual(credentialIn(answer)["id"], id)
    assertHeaders(answer)
  })

  it.effect.each(wrongMethods)("answers 405 to %s %s with Allow: %s (D10, L3)", function* ([method, path, allow]) {
    const { send } = yield* TestService.tenant
    const asked = send({ method, path, headers: [json], body: JSON.stringify(minimal) })
    const answer = yield* TestService.storing(0, asked)
    assertRefused(answer, "MethodNotAllowed")
    assert.strictEqual(answer.headers["allow"], allow)
    assertRefused(yield* TestService.send({ method, path }), "MethodNotAllowed")
  })

  it.effect("answers HEAD with the status and headers of GET, without a body (L3)", function* () {
    const { list, send } = yield* TestService.tenant
    const listed = yield* list()
    const answer = yield* send({ method: "HEAD", path: collection })
    assert.strictEqual(answer.status, 200)
    assert.strictEqual(answer.headers["content-length"], String(listed.body.length))
    assert.strictEqual((yield* TestService.send({ method: "HEAD", path: collection })).status, 401)
  })

  it.effect("answers 405 to CONNECT, opens no tunnel, and returns the request id (D10, D12)", function* () {
    for (const path of ["elsewhere.test:443", "127.0.0.1:22", collection]) {
      const headers = [["X-Request-Id", "connect-1"]] as const
      const answer = yield* TestService.send({ method: "CONNECT", path, headers })
      assertRefused(answer, "MethodNotAllowed")
      assert.strictEqual(answer.headers["x-request-id"], "connect-1")
      assert.isDefined(answer.headers["allow"])
      assert.strictEqual(answer.headers["connection"], "close")
    }
  })

  it.effect("still answers after 200 clients have sent CONNECT and left at once (T9)", function* () {
    const { url } = yield* TestService
    const { hostname, port } = new URL(url)
    const gone = Effect.callback<boolean>((resume) => {
      const socket = connect(Number(port), hostname, () => {
        socket.write(render({ method: "CONNECT", path: "elsewhere.test:443" }))
        setImmediate(() => socket.resetAndDestroy())
      })
      socket.on("error", () => {}).on("close", () => resume(Effect.succeed(true)))
    })
    yield* Effect.replicateEffect(gone, 200, { concurrency: 4 })
    assert.strictEqual((yield* send(url, { path: "/health/live" })).status, 200)
  })

  it.effect("ignores X-HTTP-Method-Override, and answers 405 to the method of the request line (D10)", function* () {
    const { send } = yield* TestService.tenant
    const headers = [["X-HTTP-Method-Override", "GET"]] as const
    assertRefused(yield* send({ method: "POST", path: `${collection}/${unknownId}`, headers }), "MethodNotAllowed")
  })
})
