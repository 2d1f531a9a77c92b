import { Effect, Layer, Option, Redacted, References, Tracer } from "effect"
import { FetchHttpClient } from "effect/http"
import { OtlpSerialization, OtlpTracer } from "effect/observability"
import type { Settings } from "./Settings.ts"

/** Attributes in which a client may have put a token by mistake. */
const redactedAttributes = new Set(["url.full", "url.query", "user_agent.original"])

const redactingTracer = Layer.effect(
  Tracer.Tracer,
  Effect.map(Tracer.Tracer, (tracer) =>
    Tracer.make({
      context: tracer.context,
      span: (options) => {
        const span = tracer.span(options)
        const attribute = span.attribute.bind(span)
        span.attribute = (key, value) => {
          if (!redactedAttributes.has(key)) attribute(key, value)
        }
        return span
      }
    })
  )
)

/** Sends spans to the collector that the settings name; without one, none are made. */
export const layer = ({ otlp }: Settings) =>
  Option.match(otlp.traces, {
    onNone: () => Layer.succeed(References.TracerEnabled, false),
    onSome: ({ headers, url }) =>
      redactingTracer.pipe(
        Layer.provide(OtlpTracer.layer({ url: url.href, headers: Redacted.value(headers), resource: otlp.resource })),
        Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer])
      )
  })
