import { Effect, Layer, Option, Redacted } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { prometheusText } from "../../src/management/ManagementServer.ts"
import * as TelemetryLive from "../../src/wiring/TelemetryLive.ts"
import { settingsFor } from "../support/database/freshDatabase.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { creation, exchange, type Header, send } from "../support/http/HttpProbe.ts"
import { samplesIn, sumIn } from "../support/http/samplesIn.ts"
import { type ReceivedSpan, SpanCollector } from "../support/http/SpanCollector.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"

const settings = settingsFor("postgres://nobody@localhost/nothing", generateKeyring(new Date(0)))

/** The service, sending traces to a collector of its own. */
const traced = Layer.unwrap(
  Effect.map(SpanCollector, ({ url }) => {
    const traces = Option.some(url.href)
    const headers = Redacted.make({ "api-key": "the collector's" })
    const resource = { ...settings.otlp.resource, serviceName: "keys" }
    return Layer.provideMerge(
      TestService.layer,
      TelemetryLive.traces({ ...settings, otlp: { ...settings.otlp, headers, resource, traces } })
    )
  })
)

const kinds = ["", "internal", "server", "client"]

/** A span and those below it, by name and kind. */
const treeOf = (spans: ReadonlyArray<ReceivedSpan>, parent: string | undefined): ReadonlyArray<unknown> =>
  spans
    .filter(({ parentSpanId }) => parentSpanId === parent)
    .map(({ kind, name, spanId }) => [`${kinds[kind]} ${name}`, ...treeOf(spans, spanId)])

const lookUpOf = (name: string) => [`internal ${name}`, [`client ${name}`]]

const route = "/api/v1/byok/:id"
const parentOf = (traceId: string, flags: string): Header => ["traceparent", `00-${traceId}-${"b".repeat(16)}-${flags}`]

layerLive(Layer.provideMerge(traced, SpanCollector.layer))("traces of requests", (it) => {
  it.effect("the trace of a get has its look-ups and their SQL statements", function* () {
    const { headers, traceOf } = yield* SpanCollector
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    const answer = yield* tenant.get(id)
    const spans = yield* traceOf(`GET ${route}`)
    assert.deepStrictEqual(treeOf(spans, undefined), [
      [`server GET ${route}`, lookUpOf("api_keys.find"), lookUpOf("credentials.find")]
    ])
    const [statement, waiting] = spans
    const request = spans.at(-1)
    assert.deepStrictEqual(request?.attributes, {
      "http.request.method": "GET",
      "http.route": route,
      "http.response.status_code": 200,
      "http.response.header.x-request-id": [answer.headers["x-request-id"]]
    })
    assert.deepStrictEqual(waiting?.attributes, {})
    assert.deepStrictEqual(statement?.attributes, {
      "db.operation.name": "api_keys.find",
      "db.system.name": "postgresql"
    })
    for (const span of spans) {
      assert.isTrue(BigInt(span.startTimeUnixNano) < BigInt(span.endTimeUnixNano))
      assert.strictEqual(span.status.code, 0)
      assert.strictEqual(span.resource["service.name"], "keys")
      assert.strictEqual(span.resource["service.instance.id"], "a test")
    }
    assert.deepInclude(headers[0], { "api-key": "the collector's", "content-type": "application/json" })
    assert.notInclude(JSON.stringify(spans), tenant.management_key)
  })

  it.effect("the trace of a create has its look-ups and the write, under the caller's span", function* () {
    const { traceOf } = yield* SpanCollector
    const tenant = yield* TestService.tenant
    const traceId = "c".repeat(32)
    yield* tenant.create(minimal, [parentOf(traceId, "01")])
    const spans = yield* traceOf("POST /api/v1/byok", traceId)
    assert.deepStrictEqual(treeOf(spans, "b".repeat(16)), [
      [
        "server POST /api/v1/byok",
        lookUpOf("api_keys.find"),
        lookUpOf("workspaces.resolve"),
        lookUpOf("leaked_keys.exist"),
        ["client credentials.insert"]
      ]
    ])
  })

  it.effect("the trace of an update has its write directly under the request", function* () {
    const { traceOf } = yield* SpanCollector
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    yield* tenant.update(id, { disabled: true })
    const [tree] = treeOf(yield* traceOf(`PATCH ${route}`), undefined)
    assert.include(JSON.stringify(tree), `["client credentials.update"]`)
  })

  it.effect("the trace of a failed request has an error code only, and hides an unknown path", function* () {
    const { traceOf } = yield* SpanCollector
    const { url } = yield* TestService
    const tenant = yield* TestService.newTenant
    yield* withoutTable("api_keys", tenant.list("", [parentOf("7".repeat(32), "01")]))
    const failed = yield* traceOf("GET /api/v1/byok", "7".repeat(32))
    assert.deepStrictEqual(
      failed.map(({ attributes, status }) => [attributes["error.type"], status.code]),
      [
        ["42P01", 2],
        ["42P01", 2],
        ["500", 2]
      ]
    )
    assert.notInclude(JSON.stringify(failed), "relation")
    const secret = "sk-0123456789-0123456789"
    const headers = [parentOf("8".repeat(32), "01")]
    yield* send(url, { method: "PUT", path: `/api/v1/${secret}?key=${secret}`, headers })
    const unknown = yield* traceOf("PUT", "8".repeat(32))
    assert.notInclude(JSON.stringify(unknown), secret)
    assert.strictEqual(unknown[0]?.attributes["http.response.status_code"], 404)
  })

  it.effect("trace and metrics of a request with a malformed body have the status of its answer", function* () {
    const { traceOf } = yield* SpanCollector
    const { url } = yield* TestService
    const { management_key } = yield* TestService.newTenant
    const headers = [["Transfer-Encoding", "chunked"], parentOf("6".repeat(32), "01")] as const
    const labels = { http_request_method: "POST", http_route: "/api/v1/byok", http_response_status_code: "400" }
    const context = yield* Effect.context()
    const counted = () => {
      const samples = samplesIn(prometheusText(context))
      return [labels, {}].map((which) => sumIn(samples, "http_server_request_duration_seconds_count", which) ?? 0)
    }
    const before = counted()
    assert.strictEqual((yield* exchange(url, creation(management_key, "no size\r\n", headers))).status, 400)
    yield* eventually("it is counted", () => counted()[0] === (before[0] ?? 0) + 1)
    assert.strictEqual(counted()[1], (before[1] ?? 0) + 1, "and as nothing else")
    // The look-up of its key may end after it.
    const request = (yield* traceOf("POST /api/v1/byok", "6".repeat(32))).find(({ kind }) => kind === 2)
    assert.deepInclude(request?.attributes, { "http.response.status_code": 400 })
    assert.strictEqual(request?.status.code, 0)
  })

  it.effect("health probes have no trace", function* () {
    const { spans, traceOf } = yield* SpanCollector
    const { url } = yield* TestService
    for (const path of ["/health/live", "/health/ready"]) yield* send(url, { path })
    yield* send(url, { path: "/", headers: [parentOf("9".repeat(32), "01")] })
    yield* traceOf("GET /", "9".repeat(32))
    assert.isFalse(spans.some(({ name }) => name.includes("health")))
  })
})
