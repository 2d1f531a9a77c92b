import type { Tracer } from "effect"

/** Which traces are recorded. */
export interface Sampling {
  /** The share of traces, from 0 to 1. */
  readonly ratio: number
  /** Whether a caller that sends a `traceparent` decides instead. */
  readonly parentDecides: boolean
}

/** Decides by the last 56 bits of the id, so every service with the same ratio records the same traces. */
const isWithin = (ratio: number) => {
  const rejected = (1 - ratio) * 2 ** 56
  return (traceId: string) => Number.parseInt(traceId.slice(-14), 16) >= rejected
}

/** Makes the decision whether a trace is recorded that begins here, under a remote parent if there is one. */
export const makeSampler = ({ parentDecides, ratio }: Sampling) => {
  const chosen = isWithin(ratio)
  return (traceId: string, remote: Tracer.ExternalSpan | undefined): boolean =>
    remote !== undefined && parentDecides ? remote.sampled : ratio === 1 || (ratio > 0 && chosen(traceId))
}
