import { join } from "node:path"
import { Redacted, Schema } from "effect"
import { hashApiKey } from "../../src/runtime/ApiKey.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, create, get, type Header, send } from "../support/http/HttpProbe.ts"
import { SpanCollector } from "../support/http/SpanCollector.ts"
import { ask, own } from "../gateway/socket.ts"
import { OnDatabase } from "../support/process/firstStart.ts"
import { assert, layerLive } from "../support/it.ts"
import { eventually } from "../support/process/eventually.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

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

  it.effect(
    "ACCESS_LOG=true names the attempt and the reported outcome of a gateway's request, and no key",
    function* () {
      const { key, settings } = yield* OnDatabase
      const path = join(yield* temporaryDirectory, "gateway.sock")
      const variables = { ACCESS_LOG: "true", LOG_FORMAT: "json", BYOK_GATEWAY_SOCKET: path }
      const { stderr, url } = yield* startService({ ...settings, ...variables })
      const credential_id = createdId(yield* create(url, key, { provider: own.provider, key: secret }))
      yield* eventually("the first line", () => requestsIn(stderr()).length > 0)
      const { account_id } = requestsIn(stderr())[0]?.annotations ?? assert.fail()
      const asked = { account_id, model: "a/model", targets: [own] }
      const { data } = JSON.parse((yield* ask(path, "POST", "/v1/attempts", asked)).text) as {
        readonly data: { readonly next: { readonly attempt: string } }
      }
      const after = { attempt: data.next.attempt, status: 429 }
      yield* ask(path, "POST", "/v1/attempts", { ...asked, after })
      yield* ask(path, "POST", "/v1/reports", { reports: [after, after] })
      yield* eventually("the last line", () => stderr().includes("/v1/reports"))
      const lines = requestsIn(stderr()).filter(({ annotations: { route } }) => String(route).startsWith("/v1/"))
      const logged = lines.map(({ annotations: { account_id, attempt, reported, route } }) => {
        return { account_id, attempt, reported, route }
      })
      const place = { provider: "azure", credential_id }
      const reported = { account_id, ...place, outcome: "rate_limited" }
      assert.deepStrictEqual(logged, [
        { account_id, attempt: place, reported: undefined, route: "/v1/attempts" },
        { account_id, attempt: undefined, reported: [reported], route: "/v1/attempts" },
        { account_id: undefined, attempt: undefined, reported: [reported, reported], route: "/v1/reports" }
      ])
      assert.notInclude(stderr(), secret.slice(0, 12))
      assert.notInclude(stderr(), data.next.attempt.slice(0, 12))
    }
  )

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
