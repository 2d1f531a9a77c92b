import { Redacted, Schema } from "effect"
import { hashApiKey } from "../../src/runtime/ApiKey.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, create, get, type Header, send } from "../support/http/HttpProbe.ts"
import { SpanCollector } from "../support/http/SpanCollector.ts"
import { OnDatabase } from "../support/process/firstStart.ts"
import { assert, layerLive } from "../support/it.ts"
import { eventually } from "../support/process/eventually.ts"
import { startService } from "../support/process/ServiceProcess.ts"

const Entry = Schema.Struct({
  level: Schema.String,
  message: Schema.Unknown,
  annotations: Schema.Record(Schema.String, Schema.Unknown),
  trace_id: Schema.optionalKey(Schema.String),
  span_id: Schema.optionalKey(Schema.String),
  version: Schema.String,
  instance: Schema.String
})
const decode = Schema.decodeUnknownSync(Schema.fromJsonString(Entry))

const entriesIn = (stderr: string) =>
  stderr
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => decode(line))

const requestsIn = (stderr: string) => entriesIn(stderr).filter(({ message }) => message === "Request")

const secret = "sk-0123456789-0123456789"

layerLive(OnDatabase.layer, { timeout: "60 seconds" })("the log of a service", (it) => {
  it.effect("ACCESS_LOG=true logs a line for each request with its route, caller and trace", function* () {
    const { key, settings } = yield* OnDatabase
    const collector = yield* SpanCollector.make
    const { stderr, url } = yield* startService({
      ...settings,
      ACCESS_LOG: "true",
      LOG_FORMAT: "json",
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url.origin,
      OTEL_METRICS_EXPORTER: "none",
      OTEL_RESOURCE_ATTRIBUTES: "service.instance.id=pod-1"
    })
    const parent: Header = ["traceparent", `00-${"a".repeat(32)}-${"b".repeat(16)}-01`]
    const id = createdId(yield* create(url, key, minimal, [["X-Request-Id", "request-1"], parent]))
    yield* get(url, key, id)
    yield* send(url, { path: `/${secret}?key=${secret}`, headers: [bearer(key)] })
    yield* send(url, { path: "/api/v1/byok", headers: [bearer(secret)] })
    yield* send(url, { path: "/health/live" })
    yield* send(url, { path: "/docs" })
    yield* eventually("the last line", () => stderr().includes("/docs"))
    const api_key_hash = hashApiKey(Redacted.make(key), "latin1")
    const found = requestsIn(stderr())
    const [created] = found
    assert.isDefined(created)
    assert.deepStrictEqual(Object.keys(created.annotations).sort(), [
      "account_id",
      "api_key_hash",
      "duration_ms",
      "method",
      "request_id",
      "route",
      "status"
    ])
    assert.strictEqual(created.annotations["request_id"], "request-1")
    assert.match(String(created.annotations["account_id"]), /^[0-9a-f-]{36}$/)
    assert.isAbove(Number(created.annotations["duration_ms"]), 0)
    assert.deepStrictEqual(
      found.map(({ annotations: { api_key_hash, method, route, status } }) => [method, route, status, api_key_hash]),
      [
        ["POST", "/api/v1/byok", 201, api_key_hash],
        ["GET", "/api/v1/byok/:id", 200, api_key_hash],
        ["GET", undefined, 404, undefined],
        ["GET", "/api/v1/byok", 401, undefined],
        ["GET", "/docs", 200, undefined]
      ]
    )
    assert.notInclude(stderr(), secret.slice(0, 12))
    assert.notInclude(stderr(), id)
    assert.notInclude(stderr(), key)
    const span = (yield* collector.traceOf("POST /api/v1/byok")).find(({ kind }) => kind === 2)
    assert.deepStrictEqual([created.trace_id, created.span_id], ["a".repeat(32), span?.spanId])
    assert.strictEqual(span?.resource["service.instance.id"], "pod-1")
    for (const entry of found) assert.deepStrictEqual([entry.instance, entry.version], ["pod-1", "1.0.0"])
  })

  it.effect("ACCESS_LOG=true logs health probes at level debug", function* () {
    const { key, settings } = yield* OnDatabase
    const variables = { ACCESS_LOG: "true", LOG_FORMAT: "json", LOG_LEVEL: "debug" }
    const { stderr, url } = yield* startService({ ...settings, ...variables })
    const asked = ["/health/live", "/api/v1/byok"]
    for (const path of asked) yield* send(url, { path, headers: [bearer(key)] })
    yield* eventually("both lines", () => requestsIn(stderr()).length === 2)
    const routes = requestsIn(stderr()).map(({ annotations: { route } }) => route)
    assert.deepStrictEqual(routes, asked)
  })
})
