import { Effect, Layer, Option, Redacted, References, Tracer } from "effect"
import { makeSpanQueue } from "../tracing/makeSpanQueue.ts"
import { makeTracer } from "../tracing/makeTracer.ts"
import type { ServiceResource } from "./ServiceResource.ts"
import type { Settings } from "./Settings.ts"

const attributesOf = ({ attributes, serviceName, serviceVersion }: ServiceResource) => ({
  "service.name": serviceName,
  "service.version": serviceVersion,
  ...attributes,
  "telemetry.sdk.language": "nodejs"
})

/** Costs half as much as `fetch`, and is loaded only for those who send. */
const client = Layer.unwrap(
  Effect.map(
    Effect.promise(() => import("@effect/platform-node/NodeHttpClient")),
    ({ layerUndici }) => layerUndici
  )
)

/** Sends spans to the collector that the settings name; without one, none are made. */
export const layer = ({ otlp }: Settings) =>
  Option.match(otlp.traces, {
    onNone: () => Layer.succeed(References.TracerEnabled, false),
    onSome: ({ headers, url }) =>
      Layer.effect(
        Tracer.Tracer,
        Effect.map(
          makeSpanQueue({ url, headers: Redacted.value(headers), resource: attributesOf(otlp.resource) }),
          (add) => makeTracer(otlp.sampling, add)
        )
      ).pipe(Layer.provide(client))
  })
