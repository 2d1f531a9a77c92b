import { Context, type Effect } from "effect"

export interface HealthReport {
  /** What prevents the service from serving requests, one sentence each; empty if it is ready. */
  readonly problems: ReadonlyArray<string>
  /** What an operator should see to although the service works, one sentence each. */
  readonly warnings: ReadonlyArray<string>
}

/** Whether the service can serve requests now. */
export class Readiness extends Context.Service<
  Readiness,
  { readonly [Part in keyof HealthReport]: Effect.Effect<HealthReport[Part]> }
>()("byok/Readiness") {}

/** Whether the service was asked to stop: it is no longer ready, but still answers. */
export const Draining = Context.Reference<() => boolean>("byok/Draining", { defaultValue: () => () => false })
