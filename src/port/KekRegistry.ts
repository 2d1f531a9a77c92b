import { Context, Data, type DateTime, type Effect, type Option, type Result } from "effect"
import type { CredentialReference, WorkspaceId } from "../domain/Identifiers.ts"
import type { OpenFailure, SealingRefused } from "./Cipher.ts"
import type { Answer, DatabaseFailure } from "./DatabaseFailure.ts"
import type { SealedKey, SealingContext } from "../domain/SealedKey.ts"

/** Records key-encryption keys (KEKs) by id and check value. Finds credentials that name them; counts include links. */
export class KekRegistry extends Context.Service<
  KekRegistry,
  {
    /** Records new keys. If the check values of some differ from the records, records none and returns those ids. */
    readonly register: (
      keks: ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array }>
    ) => Effect.Effect<ReadonlyArray<string>, DatabaseFailure>
    /** Returns the records of those keys that have one. The store refuses credentials that name a retired key. */
    readonly find: (
      kek_ids: ReadonlyArray<string>
    ) => Effect.Effect<
      ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array; readonly retired: boolean }>,
      DatabaseFailure
    >
    /** Records which keys this instance has loaded. The record counts for a minute, or until `withdraw` removes it. */
    readonly announce: (kek_ids: ReadonlyArray<string>) => Effect.Effect<void, DatabaseFailure>
    readonly withdraw: Effect.Effect<void, DatabaseFailure>
    /** The instances, as host and process id, that announced keys within the last minute, but not this key. */
    readonly instancesLacking: (kek_id: string) => Effect.Effect<ReadonlyArray<string>, DatabaseFailure>
    /** Records in the audit log that a key is about to become the primary key. */
    readonly recordPromotion: (kek_id: string) => Effect.Effect<void, DatabaseFailure>
    /** Retires a recorded key unless credentials name it, and returns how many do. */
    readonly retire: (kek_id: string) => Effect.Effect<number, DatabaseFailure>
    /** Whether a registered key may seal for a keyring of `kek_ids`. */
    readonly sealPermission: (
      kek_id: string,
      kek_ids: ReadonlyArray<string>
    ) => Effect.Effect<SealPermission, DatabaseFailure>
    /**
     * Reserves `count` wraps of a key and returns its total, these included. Returns none if the key is not registered,
     * or is `foreign` to a keyring of `kek_ids`. Of two new keys in disjoint keyrings, at most the first to reserve
     * gets wraps without `admit`.
     */
    readonly reserve: (kek_id: string, kek_ids: ReadonlyArray<string>, count: number) => Answer<Option.Option<number>>
    /** Lets a registered key seal although it is `foreign`, unless it is retired. */
    readonly admit: (kek_id: string) => Effect.Effect<void, DatabaseFailure>
    /** Every key ever registered or named by a credential, ordered by id. */
    readonly list: Answer<ReadonlyArray<KekUsage>>
    /** The registered keys that are not retired, without counting their credentials. */
    readonly live: Answer<ReadonlyArray<RegisteredKey>>
    /** Counts the credentials of every key not in `kek_ids`, each up to `limit`. */
    readonly countExcept: (
      kek_ids: ReadonlyArray<string>,
      limit?: number
    ) => Effect.Effect<ReadonlyArray<{ readonly kek_id: string; readonly credentials: number }>, DatabaseFailure>
    /** Up to `limit` credentials that name one of the keys, in order of key and id. */
    readonly findNaming: (kek_ids: ReadonlyArray<string>, limit: number) => Answer<ReadonlyArray<NamingCredential>>
    /**
     * Rewraps up to `size` credentials, or links after them, that name a key other than `primary`. Begins at `after`,
     * the `next` of the previous batch, and skips locked rows. Stores the results together, except for rows changed
     * meanwhile. May call `rewrap` several times for a row, with only the first two bytes of `sealed`: they name the
     * format, which is all that `rewrap` reads of it.
     */
    readonly rewrapBatch: (
      batch: { readonly primary: string; readonly after: string | undefined; readonly size: number },
      rewrap: Rewrapper["Service"]["rewrap"]
    ) => Answer<RewrappedBatch>
  }
>()("byok/KekRegistry") {}

/** Whether a key may seal. `foreign`: it has never sealed, and its keyring has none of the keys that have. */
export type SealPermission = "seals" | "retired" | "foreign"

export interface RegisteredKey {
  readonly kek_id: string
  /** Number of reserved wraps; not all may have been used. */
  readonly wraps: number
  /** When an instance first registered the key; absent if the store did not record it. */
  readonly registered_at?: DateTime.Utc
}

export interface KekUsage extends RegisteredKey {
  /** Number of credentials that name the key, up to `countLimit`. */
  readonly credentials: number
  /** Present if more credentials than `countLimit` name the key. */
  readonly more_credentials?: true
  readonly retired: boolean
}

/** A credential and the key that wraps its data key. */
export interface NamingCredential extends CredentialReference {
  readonly kek_id: string
  readonly workspace_id: WorkspaceId
}

export interface RewrappedBatch {
  readonly rewrapped: number
  readonly failed: ReadonlyArray<{ readonly id: string; readonly failure: OpenFailure }>
  /** Where the next batch begins, in the store's own form; undefined after the last one. */
  readonly next: string | undefined
}

/** Rewraps data keys under the primary key of the keyring, without opening provider keys. */
export class Rewrapper extends Context.Service<
  Rewrapper,
  {
    readonly primary: string
    /** The ids of all keys of the keyring, primary first. */
    readonly kek_ids: ReadonlyArray<string>
    /** Counts wraps against the limit of the primary key. Call it before making them. */
    readonly spend: (wraps: number) => Answer<void, SealingRefused>
    readonly rewrap: (
      sealed: SealedKey,
      context: SealingContext
    ) => Result.Result<Pick<SealedKey, "kek_id" | "wrapped_dek">, OpenFailure>
  }
>()("byok/Rewrapper") {}

/** Reloading failed; the instance keeps its keyring. */
export class KeyringNotReloaded extends Data.TaggedError("KeyringNotReloaded")<{ readonly message: string }> {}

/** Reloads the keyring of a running instance, one reload at a time, and logs the outcome. */
export class KeyringReload extends Context.Service<
  KeyringReload,
  { readonly reload: Effect.Effect<{ readonly kek_ids: ReadonlyArray<string> }, KeyringNotReloaded | DatabaseFailure> }
>()("byok/KeyringReload") {}
