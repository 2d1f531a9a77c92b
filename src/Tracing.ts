import { Config, Effect, Layer, Option, References } from "effect"
import { FetchHttpClient } from "effect/http"
import { OtlpSerialization, OtlpTracer } from "effect/observability"

/** Spans go to the collector at `OTEL_EXPORTER_OTLP_ENDPOINT`; without one none are made. */
export const layer = Layer.unwrap(
  Effect.map(
    Effect.orElseSucceed(Config.option(Config.URL("OTEL_EXPORTER_OTLP_ENDPOINT")), () => Option.none<URL>()),
    Option.match({
      onNone: () => Layer.succeed(References.TracerEnabled, false),
      onSome: (url) =>
        OtlpTracer.layer({ url: new URL("/v1/traces", url).href, resource: { serviceName: "byok" } }).pipe(
          Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer])
        )
    })
  )
)
