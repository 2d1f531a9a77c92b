import { Cause, Effect, Exit, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import * as Envelope from "../../src/http/Envelope.ts"
import { requestIdOf } from "../../src/http/RequestHead.ts"
import { makeRouting, Routing } from "../../src/http/Routing.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { assert, describe, it, itWith } from "../support/it.ts"
import { defaultSettings } from "../support/service/defaultSettings.ts"
import { AccessLog } from "../../src/http/traceAndLog.ts"

const canary = "a canary of a cause"
const died = Cause.die(new Error(canary))

/** Routes outside the contract, one for each outcome that the envelope must handle. */
const endings: ReadonlyArray<readonly [`/${string}`, Effect.Effect<HttpServerResponse.HttpServerResponse, unknown>]> = [
  ["/created", Effect.succeed(HttpServerResponse.jsonUnsafe({}, { status: 201, headers: { "x-own": "kept" } }))],
  ["/kept", Effect.succeed(HttpServerResponse.jsonUnsafe({}, { headers: { "cache-control": "public" } }))],
  ["/busy", Effect.succeed(HttpServerResponse.jsonUnsafe({}, { status: 503 }))],
  ["/fails", Effect.fail({ _tag: "Failure", canary })],
  ["/fails-with-RouteNotFound", Effect.fail({ reason: { _tag: "RouteNotFound", canary } })],
  ["/does-not-parse", Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ json }) => json) as Effect.Effect<never>],
  ["/dies", Effect.failCause(died)],
  ["/stops", Effect.interrupt],
  ["/stops-and-dies", Effect.failCause(Cause.combine(Cause.interrupt(), died))]
]
const routes = HttpRouter.use((router) =>
  Effect.forEach(endings, ([path, ending]) => router.add("GET", path, ending), { discard: true })
)

const ask = Effect.fnUntraced(function* (method: string, path: string, headers: Record<string, string> = {}) {
  const app = yield* HttpRouter.toHttpEffect(Layer.mergeAll(routes, Envelope.layer)).pipe(
    Effect.provideService(
      Routing,
      makeRouting(() => true)
    ),
    Effect.provideService(AccessLog, false),
    Effect.provide(defaultSettings)
  )
  const request = HttpServerRequest.fromWeb(new Request(`http://byok.test${path}`, { method, headers }))
  const found = yield* Effect.provideService(app, HttpServerRequest.HttpServerRequest, request)
  const response = HttpServerResponse.toWeb(found)
  const body = yield* Effect.promise(() => response.text())
  return { status: response.status, headers: Object.fromEntries(response.headers), body }
}, Effect.scoped)

const logged = Effect.map(Recording, ({ logs }) => logs)

const recorded = itWith(Recording.layer)

describe("the envelope around every answer (section 7)", () => {
  recorded.each(["/fails", "/fails-with-RouteNotFound", "/does-not-parse", "/dies", "/stops-and-dies"])(
    "answers 500 if the route %s fails, and shows the cause only in the log, under the request id (D11)",
    function* (path) {
      const answer = yield* ask("GET", path, { "x-request-id": "request-1" })
      assertRefused(answer, "InternalError")
      assert.isUndefined(answer.headers["allow"])
      const [entry, ...others] = yield* logged
      assert.isEmpty(others)
      assert.deepStrictEqual([entry?.level, entry?.request_id], ["Error", "request-1"])
      assert.include(entry?.text, "Unexpected failure")
      assert.include(entry?.text, path === "/does-not-parse" ? "RequestParseError" : canary)
    }
  )

  recorded("leaves an interrupted request interrupted, and does not log it (D11)", function* () {
    const exit = yield* Effect.exit(ask("GET", "/stops"))
    assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
    assert.isEmpty(yield* logged)
  })

  recorded.each([
    ["/created", 201, undefined],
    ["/busy", 503, "1"],
    ["/nothing", 404, undefined],
    ["/dies", 500, undefined]
  ] as const)(
    "the answer to %s, a %i, returns the request id and forbids caching (D12, D14)",
    function* ([path, status, retryAfter]) {
      const answer = yield* ask("GET", path, { "x-request-id": "request-1" })
      assert.strictEqual(answer.status, status)
      assert.strictEqual(answer.headers["x-request-id"], "request-1")
      assert.strictEqual(answer.headers["cache-control"], "no-store")
      assert.strictEqual(answer.headers["retry-after"], retryAfter)
      assert.strictEqual(answer.headers["x-own"], path === "/created" ? "kept" : undefined)
    }
  )

  recorded("keeps a Cache-Control that a route outside /api/v1 has set (D12)", function* () {
    assert.strictEqual((yield* ask("GET", "/kept")).headers["cache-control"], "public")
  })
})

describe("a request id (D12)", () => {
  it.each(["a", "0", "-", "request-1_2.3", "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11", "A".repeat(128)])(
    "is taken from the client if it is valid: %s",
    (id) => assert.strictEqual(requestIdOf(id), id)
  )

  const assertGenerated = (id: string | undefined) => {
    const made = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
    assert.match(requestIdOf(id), made)
    assert.notStrictEqual(requestIdOf(id), requestIdOf(id))
  }

  it("is generated if the client sends none", () => assertGenerated(undefined))

  it.each(["", " ", "A".repeat(129), "a b", "a, b", "a/b", "a:b", "é", "<script>", '"', "%0a", "{}"])(
    "is generated if the client's is invalid: %j",
    (id) => assertGenerated(id)
  )
})
