import { Effect, Layer, Option, Tracer } from "effect"
import { OtlpTracer } from "effect/observability"
import * as Otlp from "./Otlp.ts"

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

export const layer = ({ sampling, ...target }: Options): Layer.Layer<never> =>
  Layer.effect(
    Tracer.Tracer,
    Effect.map(OtlpTracer.make({ ...target, exportInterval: "1 second" }), (tracer) => sampledBy(sampling, tracer))
  ).pipe(Layer.provide(Otlp.layer))
