import { Context } from "effect"

/** A request that was answered, or that its client abandoned. */
export interface MeteredRequest {
  readonly method: string
  /** The template of its route, or `unmatched`. */
  readonly route: string
  readonly status: number
  readonly seconds: number
}

/** Measures what the HTTP server is asked. */
export interface RequestMeter {
  readonly began: () => void
  readonly ended: (request: MeteredRequest) => void
}

/** Measures nothing unless it is replaced. */
export const RequestMeter = Context.Reference<RequestMeter>("byok/RequestMeter", {
  defaultValue: () => ({ began: () => {}, ended: () => {} })
})
