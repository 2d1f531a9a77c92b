import { Effect } from "effect"
import { assert, layerLive } from "../support/it.ts"
import { minimal } from "../support/http/Bodies.ts"
import { bearer, exchange, type Header, json, render, type Request, send } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { TestService } from "../support/http/TestService.ts"

const made = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

const takenOver = ["a", "0", "-", "request-1_2.3", "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11", "A".repeat(128)]
const replaced = ["", " ", "A".repeat(129), "a b", "a,b", "a/b", "a:b", "é", "<script>", '"', "%0a", "{}"]

const chunked: Header = ["Transfer-Encoding", "chunked"]

/** One request for each way to an answer. */
const everyAnswer: ReadonlyArray<readonly [status: number, request: Request, authenticated: boolean]> = [
  [200, { path: "/health/live" }, false],
  [200, { path: "/health/ready" }, false],
  [200, { path: "/openapi.json" }, false],
  [201, { method: "POST", path: "/api/v1/byok", headers: [json], body: JSON.stringify(minimal) }, true],
  [400, { method: "POST", path: "/api/v1/byok", headers: [json], body: "{" }, true],
  [400, { method: "POST", path: "/api/v1/byok", headers: [json, chunked], body: "zz\r\n" }, true],
  [400, { path: "/health/live", headers: [["Host", "a"], json, ["Host", "b"]] }, false],
  [401, { method: "POST", path: "/api/v1/byok" }, false],
  [404, { path: "/api/v1/byok/nonsense" }, true],
  [404, { path: "/nothing" }, false],
  [405, { method: "PUT", path: "/api/v1/byok" }, false],
  [413, { method: "POST", path: "/api/v1/byok", headers: [json, ["Content-Length", "300000"]] }, true],
  [417, { path: "/health/live", headers: [["Expect", "more"]] }, false]
]

layerLive(TestService.layer)("X-Request-Id and Cache-Control (D12)", (it) => {
  const ask = Effect.fnUntraced(function* (request: Request, authenticated: boolean, ...more: ReadonlyArray<Header>) {
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const headers = [...(request.headers ?? []), ...(authenticated ? [bearer(management_key)] : []), ...more]
    return yield* send(url, { ...request, headers })
  })

  it.effect.each(everyAnswer)(
    "%i: returns the request's id, else a new one, and forbids caching: %o (D12)",
    function* ([status, request, authenticated]) {
      const named = yield* ask(request, authenticated, ["X-Request-Id", "my-request_1.0"])
      const [one, other] = [yield* ask(request, authenticated), yield* ask(request, authenticated)]
      for (const answer of [named, one, other]) {
        assert.strictEqual(answer.status, status)
        assert.strictEqual(answer.headers["cache-control"], "no-store")
      }
      assert.strictEqual(named.headers["x-request-id"], "my-request_1.0")
      for (const { headers } of [one, other]) assert.match(headers["x-request-id"] ?? "", made)
      assert.notStrictEqual(one.headers["x-request-id"], other.headers["x-request-id"])
    }
  )

  it.effect.each(takenOver)("accepted: %s (D12)", function* (id) {
    const answer = yield* ask({ path: "/api/v1/byok/nonsense" }, true, ["X-Request-Id", id])
    assert.strictEqual(answer.headers["x-request-id"], id)
  })

  it.effect.each(replaced)("replaced: %j (D12)", function* (id) {
    const answer = yield* ask({ path: "/api/v1/byok/nonsense" }, true, ["X-Request-Id", id])
    assert.match(answer.headers["x-request-id"] ?? "", made)
  })

  it.effect("replaced if sent twice (D12)", function* () {
    const answer = yield* ask({ path: "/nothing" }, false, ["X-Request-Id", "a"], ["X-Request-Id", "b"])
    assert.match(answer.headers["x-request-id"] ?? "", made)
  })

  it.effect("new for each request on a connection (D12)", function* () {
    const { url } = yield* TestService
    const connection = yield* open(url)
    yield* connection.write(render({ path: "/health/live", headers: [["X-Request-Id", "my-request_1.0"]] }))
    assert.strictEqual((yield* connection.answer).headers["x-request-id"], "my-request_1.0")
    yield* connection.write("nonsense\r\n\r\n")
    assert.match((yield* connection.answer).headers["x-request-id"] ?? "", made)
  })

  it.effect("present even if the request cannot be parsed (D12)", function* () {
    const { url } = yield* TestService
    const answer = yield* exchange(url, "nonsense\r\nX-Request-Id: a\r\n\r\n")
    assert.match(answer.headers["x-request-id"] ?? "", made)
    assert.strictEqual(answer.headers["cache-control"], "no-store")
  })
})
