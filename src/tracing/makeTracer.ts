import { Option, Tracer } from "effect"
import { makeSampler, type Sampling } from "./makeSampler.ts"
import { newTraceId } from "./traceIds.ts"
import { RecordedSpan } from "./RecordedSpan.ts"

/** Of spans that nobody asked for. */
const unsampledTrace = "0".repeat(32)

/** Makes spans and passes those that are recorded on as they end. Whoever makes a span as a root has sampled it. */
export const makeTracer = (sampling: Sampling, ended: (span: RecordedSpan) => void): Tracer.Tracer => {
  const isSampled = makeSampler(sampling)
  return Tracer.make({
    span: (options) => {
      const parent = Option.getOrUndefined(options.parent)
      if (!options.sampled) return new RecordedSpan(options, parent?.traceId ?? unsampledTrace, false, ended)
      const traceId = parent?.traceId.padStart(32, "0") ?? newTraceId()
      const sampled = options.root || (parent?._tag === "Span" ? parent.sampled : isSampled(traceId, parent))
      return new RecordedSpan(options, traceId, sampled, ended)
    }
  })
}
