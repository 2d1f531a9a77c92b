import { Effect, Layer, Option, Schedule, Tracer } from "effect"
import { HttpClient, type HttpClientError, type HttpClientResponse } from "effect/http"
import { OtlpExporter, OtlpSerialization, OtlpTracer } from "effect/observability"

/** Sends spans to an OpenTelemetry collector, without the text of any failure. */
export const tracer = ({ sampling, ...target }: Options): Layer.Layer<never> =>
  Layer.effect(
    Tracer.Tracer,
    Effect.map(OtlpTracer.make({ ...target, exportInterval: "1 second" }), (tracer) => sampledBy(sampling, tracer))
  ).pipe(Layer.provide(layer))

interface Options extends Pick<
  Parameters<typeof OtlpTracer.make>[0],
  "url" | "headers" | "resource" | "shutdownTimeout"
> {
  readonly sampling: Sampling
}

/** Which traces to record. */
export interface Sampling {
  /** The share of traces, from 0 to 1. */
  readonly ratio: number
  /** Whether a caller that sends a `traceparent` decides for its trace. */
  readonly parentDecides: boolean
}

/**
 * Decides whether to record a trace at its first span in this process: by the ratio, or as the caller decided. Later
 * spans, explicit roots and spans that Effect does not sample keep Effect's decision.
 */
export const sampledBy = ({ parentDecides, ratio }: Sampling, tracer: Tracer.Tracer) =>
  Tracer.make({
    span: (options) => {
      const span = tracer.span(options)
      const parent = Option.getOrUndefined(options.parent)
      if (!options.sampled || options.root || parent?._tag === "Span") return span
      const sampled = parent !== undefined && parentDecides ? parent.sampled : isWithin(ratio, span.traceId)
      return sampled ? span : tracer.span({ ...options, sampled: false })
    }
  })

/** Compares the last 56 bits of the id, so that services with equal ratios record the same traces. */
const isWithin = (ratio: number, traceId: string) =>
  ratio > 0 && Number.parseInt(traceId.slice(-14), 16) >= (1 - ratio) * 2 ** 56

type Serialization = OtlpSerialization.OtlpSerialization["Service"]
type Metric = Parameters<
  Serialization["metrics"]
>[0]["resourceMetrics"][number]["scopeMetrics"][number]["metrics"][number]
type Span = Parameters<Serialization["traces"]>[0]["resourceSpans"][number]["scopeSpans"][number]["spans"][number]

/** OTLP's status code of a failed span. */
const errorStatus = 2

/** Removes message and stack of a failure, which Effect puts into events and status: they may contain secrets. */
const removeFailure = (span: Span) =>
  void Object.assign(span, { events: [], status: { code: span.status.code === errorStatus ? errorStatus : 0 } })

/** Removes the attribute `unit`, from which Effect has read the unit of a series. */
const removeUnit = ({ gauge, histogram, sum }: Metric) => {
  for (const series of [gauge, histogram, sum]) {
    for (const point of series?.dataPoints ?? []) {
      Object.assign(point, { attributes: (point.attributes ?? []).filter(({ key }) => key !== "unit") })
    }
  }
}

/** OTLP as JSON, without the text of any failure or the attribute `unit`. */
const serialization = Layer.effect(
  OtlpSerialization.OtlpSerialization,
  Effect.map(OtlpSerialization.OtlpSerialization, (json) => ({
    ...json,
    traces: (data) => {
      for (const { spans } of data.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans)) spans.forEach(removeFailure)
      return json.traces(data)
    },
    metrics: (data) => {
      for (const { metrics } of data.resourceMetrics.flatMap((each) => each.scopeMetrics)) metrics.forEach(removeUnit)
      return json.metrics(data)
    }
  }))
).pipe(Layer.provide(OtlpSerialization.layerJson))

/** Short, because waiting spans take memory while the collector does not answer. */
const exportTimeout = "5 seconds"

/** Logs a failed export without its URL, which Effect's message contains, and stops the exporter for a minute. */
const reportFailure = Effect.andThen(
  Effect.logWarning("The OpenTelemetry collector refuses or does not answer: nothing is sent to it for a minute"),
  Effect.die("the collector failed")
)

/** Retries a failed export twice, within `exportTimeout`, and then reports the failure. */
const retryAndReport = (client: HttpClient.HttpClient): HttpClient.HttpClient =>
  HttpClient.transformResponse(
    HttpClient.filterStatusOk(client),
    (exchange): Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.HttpClientError> =>
      Effect.tap(exchange, (response) => response.arrayBuffer).pipe(
        Effect.retry({ times: 2, schedule: Schedule.spaced("1 second") }),
        Effect.timeout(exportTimeout),
        Effect.catchCause(() => reportFailure)
      )
  )

/** The client of `node:http`, because the bundle cannot load Undici. Loaded only if there is a collector. */
const client = Layer.unwrap(
  Effect.map(
    Effect.promise(() => import("@effect/platform-node/NodeHttpClient")),
    ({ layerNodeHttp }) => layerNodeHttp
  )
)

/** The services of Effect's OTLP exporters, which drop waiting data and that of the next minute after a failure. */
export const layer = Layer.mergeAll(
  serialization,
  Layer.provide(Layer.effect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, retryAndReport)), client),
  OtlpExporter.layerFlusher
)
