import { Context, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** What the store knows of key-encryption keys: never a key, only ids, check values and how often each has wrapped. */
export class KekRegistry extends Context.Service<
  KekRegistry,
  {
    /** Records the check value of every key seen for the first time. If one differs from its record, records nothing and answers with the ids that differ. */
    readonly register: (
      keks: ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array }>
    ) => Effect.Effect<ReadonlyArray<string>>
    /** Those of the given keys that are recorded. No credential can be stored that names a retired one. */
    readonly known: (
      kek_ids: ReadonlyArray<string>
    ) => Effect.Effect<
      ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array; readonly retired: boolean }>
    >
    /** Records that a key is about to become the one that seals. */
    readonly promote: (kek_id: string) => Effect.Effect<void>
    /** Retires a recorded key, if no credential names it, and answers with the number of those that do. */
    readonly retire: (kek_id: string) => Effect.Effect<number>
    /** The ids that stored credentials name beside the given ones, with the number of those credentials. */
    readonly missing: (
      kek_ids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<{ readonly kek_id: string; readonly credentials: number }>>
    /** Sets aside `count` wraps of the key and answers with the number set aside so far, these included. */
    readonly reserve: (kek_id: string, count: number) => Effect.Effect<number, ServiceUnavailable>
  }
>()("byok/KekRegistry") {}
