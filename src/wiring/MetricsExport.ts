import { Effect, Layer, Option, Redacted } from "effect"
import { OtlpMetrics } from "effect/observability"
import { KeyEncryption } from "../crypto/KeyEncryption.ts"
import { limits } from "../crypto/WrapBudget.ts"
import * as Otlp from "../telemetry/Otlp.ts"
import * as ProcessGauges from "../telemetry/ProcessGauges.ts"
import * as StoreGauges from "../telemetry/StoreGauges.ts"
import type { Settings } from "./Settings.ts"
import { version } from "./OtlpSettings.ts"

/** Sends series to the collector that the settings name. */
export const push = ({ metricsInterval, otlp }: Settings): Layer.Layer<never> =>
  Option.match(otlp.metrics, {
    onNone: () => Layer.empty,
    onSome: ({ headers, url }) =>
      Layer.empty.pipe(
        Layer.provide(
          OtlpMetrics.layer({
            url: url.href,
            headers: Redacted.value(headers),
            resource: otlp.resource,
            exportInterval: metricsInterval
          })
        ),
        Layer.provide(Otlp.layer)
      )
  })

const storeGauges = Layer.unwrap(
  Effect.map(KeyEncryption, ({ primary }) => StoreGauges.layer({ wrapsLimit: limits.refuse, primary }))
)

/** Everything that is read when series are exported, and their export. Nothing is read if nobody gets them. */
export const layer = (settings: Settings) =>
  Option.isNone(settings.management) && Option.isNone(settings.otlp.metrics)
    ? Layer.empty
    : Layer.provideMerge(push(settings), Layer.merge(ProcessGauges.layer(version), storeGauges))
