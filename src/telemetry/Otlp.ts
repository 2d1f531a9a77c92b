import { Effect, Layer, Option, Schedule, Tracer } from "effect"
import { HttpClient, type HttpClientError, type HttpClientResponse } from "effect/http"
import { OtlpExporter, OtlpSerialization, OtlpTracer } from "effect/observability"

type Serialization = OtlpSerialization.OtlpSerialization["Service"]
type Metric = Parameters<
  Serialization["metrics"]
>[0]["resourceMetrics"][number]["scopeMetrics"][number]["metrics"][number]
type Span = Parameters<Serialization["traces"]>[0]["resourceSpans"][number]["scopeSpans"][number]["spans"][number]

const failed = 2

/** Removes the message and stack of a failure, which may contain secrets and which Effect puts into events and status. */
const removeText = (span: Span) =>
  void Object.assign(span, { events: [], status: { code: span.status.code === failed ? failed : 0 } })

/** Removes the attribute from which Effect reads the unit of a series. */
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

/** A longer timeout would keep spans in memory while the collector does not answer. */
const timeout = "5 seconds"

/** Reports a failed export without the URL, which Effect's message contains. */
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

/** The client of `node:http`, because the bundle cannot load Undici. Loaded on the first export. */
const client = Layer.unwrap(
  Effect.map(
    Effect.promise(() => import("@effect/platform-node/NodeHttpClient")),
    ({ layerNodeHttp }) => layerNodeHttp
  )
)

/** Services of Effect's exporters. A failure drops the waiting data and that of the next minute. */
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

/** Compares the last 56 bits of the id, so that services with equal ratios record the same traces. */
const isWithin = (ratio: number, traceId: string) =>
  ratio > 0 && Number.parseInt(traceId.slice(-14), 16) >= (1 - ratio) * 2 ** 56

/** Decides for each trace that begins in this process; other spans keep their decision. */
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
