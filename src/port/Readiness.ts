import { Context, type Effect } from "effect"

/** Whether the service can do its work now. */
export class Readiness extends Context.Service<
  Readiness,
  {
    /** What stands in the way, a sentence each; empty when nothing does. */
    readonly problems: Effect.Effect<ReadonlyArray<string>>
  }
>()("byok/Readiness") {}
