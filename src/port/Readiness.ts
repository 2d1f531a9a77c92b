import { Context, type Effect } from "effect"

/** Tells what keeps the service from serving requests now, and what an operator should mend. */
export class Readiness extends Context.Service<
  Readiness,
  { readonly [Part in keyof HealthReport]: Effect.Effect<HealthReport[Part]> }
>()("byok/Readiness") {}

export interface HealthReport {
  /** Reasons why the service is not ready, one sentence each. */
  readonly problems: ReadonlyArray<string>
  /** Faults that an operator should mend although the service works, one sentence each. */
  readonly warnings: ReadonlyArray<string>
}

/** Whether the service was asked to stop: it is no longer ready, but still answers. */
export class Draining extends Context.Service<Draining, () => boolean>()("byok/Draining") {}
