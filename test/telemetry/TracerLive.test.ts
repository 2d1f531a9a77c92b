import { randomBytes } from "node:crypto"
import { Context, Effect, Layer, Option, Redacted, References, Tracer } from "effect"
import { FetchHttpClient } from "effect/http"
import { TestClock } from "effect/testing"
import { OtlpSerialization, OtlpTracer } from "effect/observability"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { type Sampling, sampledBy } from "../../src/telemetry/Otlp.ts"
import * as TelemetryLive from "../../src/wiring/TelemetryLive.ts"
import { startCollector } from "../leaks/Collector.ts"
import { settingsFor } from "../support/database/freshDatabase.ts"
import { SpanCollector } from "../support/http/SpanCollector.ts"
import { eventually } from "../support/process/eventually.ts"
import { logLines } from "../support/process/Recording.ts"
import { assert, describe, it } from "../support/it.ts"

describe("trace sampling", () => {
  const ids = Array.from({ length: 20_000 }, () => randomBytes(16).toString("hex"))

  /** Whether a request is recorded, by the trace id of its caller and whether the caller recorded it. */
  const isRecorded = (sampling: Sampling, traceId: string, recorded: boolean) =>
    sampledBy(sampling, Tracer.make({ span: (options) => new Tracer.NativeSpan(options) })).span({
      name: "a request",
      parent: Option.some(Tracer.externalSpan({ traceId, spanId: "b".repeat(16), sampled: recorded })),
      annotations: Context.empty(),
      links: [],
      startTime: 0n,
      kind: "server",
      root: false,
      sampled: true
    }).sampled

  it.each([0.01, 0.25, 0.5, 0.9])("records the share of traces that a ratio of %d asks for", (ratio) => {
    const share = ids.filter((id) => isRecorded({ ratio, parentDecides: false }, id, false)).length / ids.length
    // Five standard deviations.
    assert.closeTo(share, ratio, 5 * Math.sqrt((ratio * (1 - ratio)) / ids.length))
  })

  it("decides by the last digits of the trace id, so that a larger ratio keeps the traces of a smaller one", () => {
    const [some, more] = [0.2, 0.4].map((ratio) => ({ ratio, parentDecides: false })) as [Sampling, Sampling]
    for (const id of ids) {
      if (isRecorded(some, id, false)) assert.isTrue(isRecorded(more, id, false))
      assert.strictEqual(isRecorded(some, id, false), isRecorded(some, `${"0".repeat(18)}${id.slice(18)}`, true))
    }
  })

  it("records everything at ratio 1 and nothing at 0", () => {
    for (const id of [...ids, "0".repeat(32), "f".repeat(32)]) {
      assert.isTrue(isRecorded({ ratio: 1, parentDecides: false }, id, false))
      assert.isFalse(isRecorded({ ratio: 0, parentDecides: false }, id, true))
    }
  })

  it("follows the caller's sampling decision if parentDecides is set", () => {
    for (const ratio of [0, 0.5, 1]) {
      for (const recorded of [true, false]) {
        assert.strictEqual(isRecorded({ ratio, parentDecides: true }, "f".repeat(32), recorded), recorded)
      }
    }
  })
})

const settings = settingsFor("postgres://nobody@localhost/nothing", generateKeyring(new Date(0)))

const tracingTo = (endpoint: Option.Option<string>) => {
  const headers = Redacted.make({ authorization: "Bearer canary" })
  const traces = Option.map(endpoint, (url) => new URL(url).href)
  return TelemetryLive.traces({ ...settings, otlp: { ...settings.otlp, headers, traces } })
}

/** Spans with `canary` in every text of a failure that Effect exports. */
const failing = Effect.forEach(
  [
    Effect.fail({ _tag: "canary", message: "canary" }),
    Effect.suspend(() => Effect.die(new Error("canary", { cause: new Error("canary") }))),
    Effect.annotateLogs(Effect.logError("canary"), "canary", "canary")
  ],
  (effect) => Effect.exit(Effect.withSpan(effect, "a span")),
  { discard: true }
)

describe("traces sent to an OpenTelemetry collector", () => {
  it.live.each([
    ["without a path", "/", ""],
    ["with a path", "/otlp/v1/traces?tenant=1", "/otlp/v1/traces?tenant=1"]
  ] as const)("for an endpoint %s are posted to %s, without error messages", function* ([, expected, path]) {
    const { received, url } = yield* startCollector
    yield* Effect.provide(failing, tracingTo(Option.some(url + path)))
    assert.deepStrictEqual(
      Array.from(received().matchAll(/^POST (\S+) /gm), ([, path]) => path),
      [expected]
    )
    assert.include(received(), "authorization Bearer canary")
    const [, body = ""] = received().split("\n")
    assert.lengthOf(Array.from(body.matchAll(/"status":\{"code":2\}/g)), 2)
    assert.notInclude(body, "canary")
  })

  it.live("contain error messages if Effect's own exporter sends them (control)", function* () {
    const { received, url } = yield* startCollector
    const layer = OtlpTracer.layer({ url, resource: { serviceName: "byok" } })
    yield* Effect.provide(failing, Layer.provide(layer, [OtlpSerialization.layerJson, FetchHttpClient.layer]))
    for (const part of ["exception.message", "exception.stacktrace"])
      assert.match(received(), new RegExp(`"${part}","value":\\{"stringValue":"[^"]*canary`))
  })

  it.live("are not created without a collector", function* () {
    const enabled = (endpoint: Option.Option<string>) => Effect.provide(References.TracerEnabled, tracingTo(endpoint))
    assert.isFalse(yield* enabled(Option.none()))
    assert.isTrue(yield* enabled(Option.some("http://127.0.0.1:1")))
  })

  it.effect.each([
    ["refuses", 401],
    ["does not answer", 0]
  ] as const)(
    "are dropped while the collector %s, with a warning that shows neither URL nor headers",
    function* ([, status]) {
      const { answer, headers, spans, url } = yield* SpanCollector.make
      const lines: Array<string> = []
      answer(status)
      const aSpan = Effect.withSpan(Effect.void, "a span")
      yield* Effect.gen(function* () {
        yield* aSpan
        yield* eventually(
          "the failure is reported",
          Effect.map(TestClock.adjust("1 second"), () => lines.length > 0)
        )
        answer(200)
        yield* aSpan
      }).pipe(Effect.provide(Layer.provide(tracingTo(Option.some(`${url.href}?token=canary`)), logLines(lines))))
      assert.deepStrictEqual(lines, [
        "Warn The OpenTelemetry collector refuses or does not answer: nothing is sent to it for a minute"
      ])
      assert.strictEqual(headers[0]?.["authorization"], "Bearer canary")
      assert.isEmpty(spans)
    }
  )
})
