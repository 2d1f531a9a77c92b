import { Context, type Effect } from "effect"

/** Whether the service can serve requests now. */
export class Readiness extends Context.Service<
  Readiness,
  {
    /** What prevents it, one sentence each; empty if ready. */
    readonly problems: Effect.Effect<ReadonlyArray<string>>
    /** What an operator should see to although the service works, one sentence each. */
    readonly warnings: Effect.Effect<ReadonlyArray<string>>
  }
>()("byok/Readiness") {}
