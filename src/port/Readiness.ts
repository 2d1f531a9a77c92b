import { Context, type Effect } from "effect"

export class Readiness extends Context.Service<
  Readiness,
  {
    /** What prevents it, one sentence each; empty if ready. */
    readonly problems: Effect.Effect<ReadonlyArray<string>>
    /** What an operator should see to although the service works, one sentence each. */
    readonly warnings: Effect.Effect<ReadonlyArray<string>>
  }
>()("byok/Readiness") {}

/** Whether the service was asked to stop: it is no longer ready, but still answers. */
export const Draining = Context.Reference<() => boolean>("byok/Draining", { defaultValue: () => () => false })
