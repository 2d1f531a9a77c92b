import { Effect, Layer, Option, Schedule, Tracer } from "effect"
import { HttpClient, type HttpClientError, type HttpClientResponse } from "effect/http"
import { OtlpExporter, OtlpSerialization, OtlpTracer } from "effect/observability"

type Serialization = OtlpSerialization.OtlpSerialization["Service"]
type Metric = Parameters<
  Serialization["metrics"]
>[0]["resourceMetrics"][number]["scopeMetrics"][number]["metrics"][number]
type Span = Parameters<Serialization["traces"]>[0]["resourceSpans"][number]["scopeSpans"][number]["spans"][number]

const failed = 2

/** Effect adds the message and the stack of a failure, which may hold anything, as an event and to the status. */
const removeText = (span: Span) =>
  void Object.assign(span, { events: [], status: { code: span.status.code === failed ? failed : 0 } })

/** Effect takes the unit of a series from its attributes and leaves it among them. */
const removeUnit = ({ gauge, histogram, sum }: Metric) => {
  for (const series of [gauge, histogram, sum]) {
    for (const point of series?.dataPoints ?? []) {
      Object.assign(point, { attributes: (point.attributes ?? []).filter(({ key }) => key !== "unit") })
    }
  }
}

/** OTLP as JSON, without the text of any failure. */
const serialization = Layer.effect(
  OtlpSerialization.OtlpSerialization,
  Effect.map(OtlpSerialization.OtlpSerialization, (json) => ({
    ...json,
    traces: (data) => {
      for (const { spans } of data.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans)) spans.forEach(removeText)
      return json.traces(data)
    },
    metrics: (data) => {
      for (const { metrics } of data.resourceMetrics.flatMap((each) => each.scopeMetrics)) metrics.forEach(removeUnit)
      return json.metrics(data)
    }
  }))
).pipe(Layer.provide(OtlpSerialization.layerJson))

/** Retrying a collector that does not answer would keep its spans in memory for longer. */
const timeout = "5 seconds"

/** Reports an export that failed, without the URL and the headers: Effect's own message holds the URL. */
const reportFailure = Effect.andThen(
  Effect.logWarning("The OpenTelemetry collector refuses or does not answer: nothing is sent to it for a minute"),
  Effect.die("the collector failed")
)

const reporting = (client: HttpClient.HttpClient): HttpClient.HttpClient =>
  HttpClient.transformResponse(
    HttpClient.filterStatusOk(client),
    (sent): Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.HttpClientError> =>
      Effect.tap(sent, (response) => response.arrayBuffer).pipe(
        Effect.retry({ times: 2, schedule: Schedule.spaced("1 second") }),
        Effect.timeout(timeout),
        Effect.catchCause(() => reportFailure)
      )
  )

/** The client of `node:http`, for the bundle cannot load Undici. It is loaded only if something is sent. */
const client = Layer.unwrap(
  Effect.map(
    Effect.promise(() => import("@effect/platform-node/NodeHttpClient")),
    ({ layerNodeHttp }) => layerNodeHttp
  )
)

/** What Effect's exporters need to send to a collector. A failure drops what is waiting, and what follows for a minute. */
export const layer = Layer.mergeAll(
  serialization,
  Layer.provide(Layer.effect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, reporting)), client),
  OtlpExporter.layerFlusher
)

/** Which traces are recorded. */
export interface Sampling {
  /** The share of traces, from 0 to 1. */
  readonly ratio: number
  /** Whether a caller that sends a `traceparent` decides instead. */
  readonly parentDecides: boolean
}

/** Compares the last 56 bits of the id, so that every service with the same ratio records the same traces. */
const isWithin = (ratio: number, traceId: string) =>
  ratio > 0 && Number.parseInt(traceId.slice(-14), 16) >= (1 - ratio) * 2 ** 56

/** Decides for each trace that begins in this process. Spans within a trace, and roots, keep the decision they were made with. */
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

interface Options extends Pick<
  Parameters<typeof OtlpTracer.make>[0],
  "url" | "headers" | "resource" | "shutdownTimeout"
> {
  readonly sampling: Sampling
}

export const tracer = ({ sampling, ...target }: Options): Layer.Layer<never> =>
  Layer.effect(
    Tracer.Tracer,
    Effect.map(OtlpTracer.make({ ...target, exportInterval: "1 second" }), (tracer) => sampledBy(sampling, tracer))
  ).pipe(Layer.provide(layer))
