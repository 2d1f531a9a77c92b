import { Effect, Layer, Option, References, Tracer } from "effect"
import { FetchHttpClient } from "effect/http"
import { OtlpSerialization, OtlpTracer } from "effect/observability"
import type { Settings } from "./Settings.ts"

/** Where a client may have put a token by mistake. */
const untold = new Set(["url.full", "url.query", "user_agent.original"])

const discreet = Layer.effect(
  Tracer.Tracer,
  Effect.map(Tracer.Tracer, (tracer) =>
    Tracer.make({
      context: tracer.context,
      span: (options) => {
        const span = tracer.span(options)
        const attribute = span.attribute.bind(span)
        span.attribute = (key, value) => {
          if (!untold.has(key)) attribute(key, value)
        }
        return span
      }
    })
  )
)

/** A collector may be below a path. */
const tracesOf = (endpoint: URL) => {
  const url = new URL(endpoint)
  url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/traces`
  return url.href
}

/** Spans go to the collector of the settings; without one none are made. */
export const layer = ({ otlpEndpoint }: Settings) =>
  Option.match(otlpEndpoint, {
    onNone: () => Layer.succeed(References.TracerEnabled, false),
    onSome: (url) =>
      discreet.pipe(
        Layer.provide(OtlpTracer.layer({ url: tracesOf(url), resource: { serviceName: "byok" } })),
        Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer])
      )
  })
