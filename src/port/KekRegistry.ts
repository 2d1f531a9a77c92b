import { Context, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** What the store records about key-encryption keys: ids, check values and wrap counts, never a key. */
export class KekRegistry extends Context.Service<
  KekRegistry,
  {
    /**
     * Records the check value of every key seen for the first time. If any key differs from its record, records nothing
     * and returns the ids of those that differ.
     */
    readonly register: (
      keks: ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array }>
    ) => Effect.Effect<ReadonlyArray<string>>
    /** Returns those of the given keys that are recorded. The store refuses credentials that name a retired key. */
    readonly known: (
      kek_ids: ReadonlyArray<string>
    ) => Effect.Effect<
      ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array; readonly retired: boolean }>
    >
    /** Records that a key is about to become the primary key. */
    readonly promote: (kek_id: string) => Effect.Effect<void>
    /** Retires a recorded key unless credentials name it, and returns how many do. */
    readonly retire: (kek_id: string) => Effect.Effect<number>
    /** Counts the stored credentials that name keys other than the given ones, by key. */
    readonly missing: (
      kek_ids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<{ readonly kek_id: string; readonly credentials: number }>>
    /** Reserves `count` wraps of the key and returns the total reserved so far, including these. */
    readonly reserve: (kek_id: string, count: number) => Effect.Effect<number, ServiceUnavailable>
  }
>()("byok/KekRegistry") {}
