import { Effect, Layer, Option, Redacted } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { prometheusText } from "../../src/management/ManagementServer.ts"
import type { Sampling } from "../../src/telemetry/Otlp.ts"
import type { Settings } from "../../src/wiring/Settings.ts"
import * as TelemetryLive from "../../src/wiring/TelemetryLive.ts"
import { settingsFor } from "../support/database/freshDatabase.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, creation, exchange, type Header, render, send } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { samplesIn, sumIn } from "../support/http/samplesIn.ts"
import { type ReceivedSpan, SpanCollector } from "../support/http/SpanCollector.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, it, layerLive } from "../support/it.ts"

const settings = settingsFor("postgres://nobody@localhost/nothing", generateKeyring(new Date(0)))

/** Sets batching as in the other tests. */
const batching = (given: Settings): Settings => ({ ...given, database: { ...given.database, batching: true } })

/** The service, sending traces to a collector of its own. */
const tracedWith = (sampling: Sampling) =>
  Layer.unwrap(
    Effect.map(SpanCollector, ({ url }) => {
      const traces = Option.some(url.href)
      const headers = Redacted.make({ "api-key": "the collector's" })
      const resource = { ...settings.otlp.resource, serviceName: "keys" }
      return Layer.provideMerge(
        TestService.layerWith({ settings: batching }),
        TelemetryLive.traces({ ...settings, otlp: { ...settings.otlp, headers, resource, traces, sampling } })
      )
    })
  )

const kinds = ["", "internal", "server", "client"]

/** A span and those below it, by name and kind. */
const treeOf = (spans: ReadonlyArray<ReceivedSpan>, parent: string | undefined): ReadonlyArray<unknown> =>
  spans
    .filter(({ parentSpanId }) => parentSpanId === parent)
    .map(({ kind, name, spanId }) => [`${kinds[kind]} ${name}`, ...treeOf(spans, spanId)])

const lookUp = ["internal api_keys.find", ["client api_keys.find"]]
const reading = ["internal api_keys.find_with_credential", ["client api_keys.find_with_credential"]]

const route = "/api/v1/byok/:id"
const parentOf = (traceId: string, flags: string): Header => ["traceparent", `00-${traceId}-${"b".repeat(16)}-${flags}`]

layerLive(Layer.provideMerge(tracedWith({ ratio: 1, parentDecides: true }), SpanCollector.layer))("a trace", (it) => {
  it.effect("of a get has its look-up and the statement", function* () {
    const { headers, traceOf } = yield* SpanCollector
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    const answer = yield* tenant.get(id)
    const spans = yield* traceOf(`GET ${route}`)
    assert.deepStrictEqual(treeOf(spans, undefined), [[`server GET ${route}`, reading]])
    const [statement, waiting, request] = spans
    assert.deepStrictEqual(request?.attributes, {
      "http.request.method": "GET",
      "http.route": route,
      "http.response.status_code": 200,
      "http.response.header.x-request-id": [answer.headers["x-request-id"]]
    })
    assert.deepStrictEqual(waiting?.attributes, {})
    assert.deepStrictEqual(statement?.attributes, {
      "db.operation.name": "api_keys.find_with_credential",
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

  it.effect("of a create has its look-up and the INSERT, under the caller's span", function* () {
    const { traceOf } = yield* SpanCollector
    const tenant = yield* TestService.tenant
    const traceId = "c".repeat(32)
    yield* tenant.create(minimal, [parentOf(traceId, "01")])
    const spans = yield* traceOf("POST /api/v1/byok", traceId)
    assert.deepStrictEqual(treeOf(spans, "b".repeat(16)), [
      ["server POST /api/v1/byok", lookUp, ["internal credentials.insert", ["client credentials.insert"]]]
    ])
  })

  it.effect("of an update, which shares no statement, has the statement directly under the request", function* () {
    const { traceOf } = yield* SpanCollector
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    yield* tenant.update(id, { disabled: true })
    const [tree] = treeOf(yield* traceOf(`PATCH ${route}`), undefined)
    assert.include(JSON.stringify(tree), `["client credentials.update"]`)
  })

  it.effect("of a get that shares a statement links to the statement's own trace", function* () {
    const { spans, traceOf } = yield* SpanCollector
    const { url } = yield* TestService
    const tenant = yield* TestService.newTenant
    const id = createdId(yield* tenant.create(minimal))
    const path = `/api/v1/byok/${id}`
    const traceIds = ["1", "2", "3"].map((digit) => digit.repeat(32))
    const unrecorded = "4".repeat(32)
    const left = parentOf(unrecorded, "00")
    const parents = [left, ...traceIds.map((traceId) => parentOf(traceId, "01")), left]
    // Concurrent requests share a statement, except the first one after a get that was alone.
    yield* tenant.get(id)
    const connections = yield* Effect.forEach(parents, () => open(url))
    const sent = connections.map(({ answer, write }, n) => {
      const headers = [bearer(tenant.management_key), parents[n] ?? left]
      return Effect.andThen(write(render({ path, headers })), answer)
    })
    const answers = yield* Effect.all(sent, { concurrency: "unbounded" })
    for (const { status } of answers) assert.strictEqual(status, 200)

    const traces = yield* Effect.forEach(traceIds, (traceId) => traceOf(`GET ${route}`, traceId))
    const shared = spans.filter(({ attributes }) => "db.operation.batch.size" in attributes)
    assert.lengthOf(shared, 1)
    const [{ attributes, parentSpanId, spanId, traceId }] = shared as [ReceivedSpan]
    assert.deepStrictEqual(attributes, {
      "db.operation.name": "api_keys.find_with_credential",
      "db.system.name": "postgresql",
      "db.operation.batch.size": 4
    })
    assert.isUndefined(parentSpanId)
    assert.notInclude([...traceIds, unrecorded], traceId)
    for (const trace of traces) {
      assert.deepStrictEqual(treeOf(trace, "b".repeat(16)), [
        [`server GET ${route}`, ["internal api_keys.find_with_credential"]]
      ])
      assert.deepStrictEqual(
        trace[0]?.links.map((link) => [link.traceId, link.spanId]),
        [[traceId, spanId]]
      )
    }
    assert.isFalse(spans.some((span) => span.traceId === unrecorded))
  })

  it.effect("of a failed request says why in one word; of an unknown path, nothing else", function* () {
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

  it.effect("has the client's status, as the series do, if the body cannot be read", function* () {
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

  it.effect("is not recorded for a probe", function* () {
    const { spans, traceOf } = yield* SpanCollector
    const { url } = yield* TestService
    for (const path of ["/health/live", "/health/ready"]) yield* send(url, { path })
    yield* send(url, { path: "/", headers: [parentOf("9".repeat(32), "01")] })
    yield* traceOf("GET /", "9".repeat(32))
    assert.isFalse(spans.some(({ name }) => name.includes("health")))
  })
})

/** test/telemetry/TracerLive.test.ts has every combination of ratio and parent. */
it.live("a trace is sampled by the ratio and its parent", () =>
  Effect.gen(function* () {
    const collector = yield* SpanCollector
    yield* Effect.scoped(
      Effect.gen(function* () {
        const { list } = yield* TestService.tenant
        for (const headers of [[], [parentOf("d".repeat(32), "01")], [parentOf("e".repeat(32), "00")]]) {
          assert.strictEqual((yield* list("", headers)).status, 200)
        }
      }).pipe(Effect.provide(tracedWith({ ratio: 0, parentDecides: true })))
    )
    // All are sent before the service has stopped.
    const requests = collector.spans.filter(({ kind }) => kind === 2)
    assert.deepStrictEqual(
      requests.map(({ traceId }) => traceId),
      ["d".repeat(32)]
    )
  }).pipe(Effect.provide(SpanCollector.layer))
)
