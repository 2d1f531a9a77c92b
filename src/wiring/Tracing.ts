import { Effect, Layer, Option, References, Tracer } from "effect"
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

/** The endpoint may have a path. */
const tracesUrl = (endpoint: URL) => {
  const url = new URL(endpoint)
  url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/traces`
  return url.href
}

/** Sends spans to the collector that the settings name; without one, none are made. */
export const layer = ({ otlpEndpoint }: Settings) =>
  Option.match(otlpEndpoint, {
    onNone: () => Layer.succeed(References.TracerEnabled, false),
    onSome: (url) =>
      redactingTracer.pipe(
        Layer.provide(OtlpTracer.layer({ url: tracesUrl(url), resource: { serviceName: "byok" } })),
        Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer])
      )
  })
