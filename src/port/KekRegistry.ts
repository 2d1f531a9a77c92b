import { Context, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/**
 * Whether a key seals. Credentials may be sealed only under a key that the other instances can hold, so a key that has
 * never sealed is `foreign` if others have and the keyring holds none of those.
 */
export type KekStanding = "seals" | "retired" | "foreign"

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
    /** Counts the stored credentials that name keys other than the given ones, by key, each as far as `limit`. */
    readonly missing: (
      kek_ids: ReadonlyArray<string>,
      limit?: number
    ) => Effect.Effect<ReadonlyArray<{ readonly kek_id: string; readonly credentials: number }>>
    /** The standing of a registered key in a keyring of `kek_ids`. */
    readonly standing: (kek_id: string, kek_ids: ReadonlyArray<string>) => Effect.Effect<KekStanding>
    /**
     * Reserves `count` wraps of the key and returns the total reserved so far, including these; none if the key is not
     * registered, or `foreign` to a keyring of `kek_ids`. Of two new keys in keyrings without a common key, only one ever
     * gets wraps.
     */
    readonly reserve: (
      kek_id: string,
      kek_ids: ReadonlyArray<string>,
      count: number
    ) => Effect.Effect<Option.Option<number>, ServiceUnavailable>
    /** Lets a registered key seal whatever its standing, unless it is retired. */
    readonly admit: (kek_id: string) => Effect.Effect<void>
  }
>()("byok/KekRegistry") {}
