import { Effect, Layer, Option, Redacted, References } from "effect"
import { OtlpMetrics } from "effect/observability"
import { Keyring } from "../crypto/keyring/Keyring.ts"
import { limits } from "../crypto/WrapBudget.ts"
import * as Otlp from "../telemetry/Otlp.ts"
import * as Gauges from "../telemetry/Gauges.ts"
import { version } from "./OtlpSettings.ts"
import type { Settings } from "./Settings.ts"

/** How long an exiting process waits for the collector. Short, because a process that fails to start waits too. */
const shutdownTimeout = "1 second" as const

const collectorAt = (url: string, { otlp: { headers, resource } }: Settings) => ({
  url,
  headers: Redacted.value(headers),
  resource,
  shutdownTimeout
})

/** Sends spans to the collector in the settings; turns tracing off if there is none. */
export const traces = (settings: Settings): Layer.Layer<never> =>
  Option.match(settings.otlp.traces, {
    onNone: () => Layer.succeed(References.TracerEnabled, false),
    onSome: (url) => Otlp.tracer({ ...collectorAt(url, settings), sampling: settings.otlp.sampling })
  })

/** Sends metrics to the collector in the settings; empty if there is none. */
export const pushedMetrics = (settings: Settings): Layer.Layer<never> =>
  Option.match(settings.otlp.metrics, {
    onNone: () => Layer.empty,
    onSome: (url) => {
      const options = { ...collectorAt(url, settings), exportInterval: settings.metricsInterval }
      return Layer.effectDiscard(OtlpMetrics.make(options)).pipe(Layer.provide(Otlp.layer))
    }
  })

const storeGauges = Layer.unwrap(
  Effect.map(Keyring, ({ current }) =>
    Gauges.storeLayer({ wrapsLimit: limits.refuse, primary: () => current().primary.kek_id })
  )
)

/** Registers the gauges, and sends metrics to the collector, if one is set. Empty if nothing reads the metrics. */
export const metrics = (settings: Settings) =>
  Option.isNone(settings.management) && Option.isNone(settings.otlp.metrics)
    ? Layer.empty
    : Layer.provideMerge(pushedMetrics(settings), Layer.merge(Gauges.processLayer(version), storeGauges))
