import { Context, Data, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { Snapshot } from "../telemetry/Snapshot.ts"

/** What is wrong, one sentence each. */
export interface Condition {
  readonly problems: ReadonlyArray<string>
  readonly warnings: ReadonlyArray<string>
}

/** The keys in use after a reload, and how many processes have them. */
export interface Reloaded {
  readonly kek_ids: ReadonlyArray<string>
  readonly processes: number
}

/** At least one process keeps the keyring it had. */
export class ReloadRefused extends Data.TaggedError("ReloadRefused")<{
  readonly reason: string
  readonly reloaded: number
  readonly processes: number
}> {}

/** What the management port shows and does, for one process or for several together. */
export class Management extends Context.Service<
  Management,
  {
    readonly snapshot: Effect.Effect<Snapshot>
    readonly condition: Effect.Effect<Condition>
    readonly reload: Effect.Effect<Reloaded, ReloadRefused | ServiceUnavailable>
  }
>()("byok/Management") {}
