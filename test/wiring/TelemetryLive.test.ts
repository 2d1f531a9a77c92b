import { DateTime, Duration, Effect, Layer, Metric, Option, Redacted } from "effect"
import { AuditLog } from "../../src/port/AuditLog.ts"
import { families, type Family } from "../../src/runtime/families.ts"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import { makeMeter } from "../../src/runtime/Meter.ts"
import { Readiness } from "../../src/port/Readiness.ts"
import * as TelemetryLive from "../../src/wiring/TelemetryLive.ts"
import type { Settings } from "../../src/wiring/Settings.ts"
import { startCollector } from "../leaks/Collector.ts"
import { settingsFor } from "../support/database/freshDatabase.ts"
import { fixedKeyring, ringOf } from "../support/keys/keyrings.ts"
import { assert, describe, it } from "../support/it.ts"
import { neverDraining } from "../support/service/defaultSettings.ts"

interface Sent {
  readonly name: string
  readonly unit: string
  readonly description: string
}
interface Point {
  readonly attributes: ReadonlyArray<{ readonly key: string }>
}

/** Everything in JSON that is in lists of this name, at any depth. */
const allIn = (text: string, list: "metrics" | "dataPoints"): ReadonlyArray<unknown> => {
  const found: Array<unknown> = []
  JSON.parse(text, (name, value: unknown) => {
    if (name === list && Array.isArray(value)) found.push(...(value as ReadonlyArray<unknown>))
    return value
  })
  return found
}

const stores = Layer.mergeAll(
  neverDraining,
  Layer.succeed(Readiness, { problems: Effect.succeed([]), warnings: Effect.succeed([]) }),
  Layer.mock(AuditLog, { countUnsealed: () => Effect.succeed(0) }),
  fixedKeyring(ringOf("kek")),
  Layer.mock(KekRegistry, {
    live: Effect.map(DateTime.now, (registered_at) => [{ kek_id: "kek", wraps: 1, registered_at }])
  })
)

const base = settingsFor("postgres://localhost/nowhere")

/** Runs with these settings of the collector, and returns everything that the collector received. */
const received = (change: (url: URL) => Partial<Settings>) =>
  Effect.gen(function* () {
    const collector = yield* startCollector
    const settings = { ...base, ...change(new URL(`${collector.url}/v1/metrics`)) }
    const made = Effect.gen(function* () {
      const { counter, histogram } = yield* makeMeter
      counter("byok.router.plans", { result: "test" })()
      histogram("http.server.request.duration", { "http.route": "/" })(0.5)
      yield* Effect.yieldNow
    })
    const exported = Layer.provide(TelemetryLive.metrics(settings), stores)
    const registry = Layer.sync(Metric.MetricRegistry, () => new Map())
    yield* Effect.scoped(
      Effect.flatMap(Layer.build(Layer.provideMerge(exported, registry)), (built) => Effect.provide(made, built))
    )
    return collector.received()
  })

const toCollector = (url: URL): Partial<Settings> => ({
  metricsInterval: Duration.minutes(10),
  otlp: { ...base.otlp, metrics: Option.some(url.href), headers: Redacted.make({ "x-collector-key": "a secret" }) }
})

describe("metrics sent to an OpenTelemetry collector", () => {
  it.live("are sent at shutdown at the latest, with unit, description, labels, resource and headers", function* () {
    const text = yield* received(toCollector)
    assert.include(text, "POST /v1/metrics ")
    assert.include(text, "x-collector-key a secret")
    assert.include(text, '{"key":"service.instance.id","value":{"stringValue":"a test"}}')
    const [, body = ""] = /^(\{"resourceMetrics".*)$/m.exec(text) ?? []
    const metrics = allIn(body, "metrics") as ReadonlyArray<Sent>
    const known = new Map(Object.entries<Family>(families))
    for (const { description, name, unit } of metrics) {
      assert.deepStrictEqual([unit, description], [known.get(name)?.unit, known.get(name)?.description], name)
    }
    assert.includeMembers(
      metrics.map(({ name }) => name),
      [
        "byok.router.plans",
        "http.server.request.duration",
        "process.cpu.time",
        "byok.ready",
        "byok.kek.wraps",
        "byok.kek.primary.age"
      ]
    )
    const points = allIn(body, "dataPoints") as ReadonlyArray<Point>
    assert.isAbove(points.length, 10)
    const labels = new Set(points.flatMap(({ attributes }) => attributes.map(({ key }) => key)))
    assert.notInclude([...labels], "unit")
    assert.includeMembers([...labels], ["result", "http.route", "cpu.mode", "kek_id"])
  })

  it.live("are not sent unless the settings name a collector", function* () {
    assert.strictEqual(yield* received(() => ({})), "")
  })
})
