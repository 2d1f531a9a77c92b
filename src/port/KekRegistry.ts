import { Context, Data, type DateTime, type Effect, type Option, type Result } from "effect"
import type { OwnedCredential, WorkspaceId } from "../domain/Identifiers.ts"
import type { KeyStoreUnavailable, RewrapFailure } from "./Cipher.ts"
import type { Answer } from "./DatabaseFailure.ts"
import type { SealedKey, SealingContext } from "../domain/SealedKey.ts"

/** A key that has never sealed is `foreign` if others have and the keyring holds none of those. */
export type SealPermission = "seals" | "retired" | "foreign"

export interface RegisteredKey {
  readonly kek_id: string
  /** How many wraps are reserved for it: no fewer than it has made. */
  readonly wraps: number
  /** When an instance first registered it. Absent if the store did not record that yet. */
  readonly registered_at?: DateTime.Utc
}

export interface KekUsage extends RegisteredKey {
  /** How many credentials name it, as far as `countLimit`. */
  readonly credentials: number
  /** Present if even more do. */
  readonly more_credentials?: true
  readonly retired: boolean
}

export interface NamingCredential extends OwnedCredential {
  readonly kek_id: string
  readonly workspace_id: WorkspaceId
}

export interface RewrappedBatch {
  readonly rewrapped: number
  readonly failed: ReadonlyArray<{ readonly id: string; readonly failure: RewrapFailure }>
  /** Where the next batch begins, in the store's own form; undefined after the last one. */
  readonly next: string | undefined
}

/** What the store records about key-encryption keys and the credentials that name them: never a key in the clear. */
export class KekRegistry extends Context.Service<
  KekRegistry,
  {
    /** Records the check values of new keys. If any key differs from its record, records none and returns those. */
    readonly register: (
      keks: ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array }>
    ) => Effect.Effect<ReadonlyArray<string>>
    /** Returns those of the given keys that are recorded. The store refuses credentials that name a retired key. */
    readonly known: (
      kek_ids: ReadonlyArray<string>
    ) => Effect.Effect<
      ReadonlyArray<{ readonly kek_id: string; readonly check_value: Uint8Array; readonly retired: boolean }>
    >
    /** Records which keys this running instance has loaded, for a minute. */
    readonly announce: (kek_ids: ReadonlyArray<string>) => Effect.Effect<void>
    /** Ends what it announced. */
    readonly withdraw: Effect.Effect<void>
    /** The instances that announced their keys within a minute and lack this one, each as its host and process id. */
    readonly lacking: (kek_id: string) => Effect.Effect<ReadonlyArray<string>>
    /** Records that a key is about to become the primary key. */
    readonly promote: (kek_id: string) => Effect.Effect<void>
    /** Retires a recorded key unless credentials name it, and returns how many do. */
    readonly retire: (kek_id: string) => Effect.Effect<number>
    /** Whether a registered key may seal for a keyring of `kek_ids`. */
    readonly sealPermission: (kek_id: string, kek_ids: ReadonlyArray<string>) => Effect.Effect<SealPermission>
    /**
     * Reserves wraps and returns the total so far; none if the key is not registered, or `foreign` to a keyring of
     * `kek_ids`. Of two new keys in keyrings without a common key, only one ever gets wraps.
     */
    readonly reserve: (kek_id: string, kek_ids: ReadonlyArray<string>, count: number) => Answer<Option.Option<number>>
    /** Lets a registered key seal even if it is `foreign`, but not if it is retired. */
    readonly admit: (kek_id: string) => Effect.Effect<void>
    /** Every key that was ever registered or that a credential names, ordered by id. */
    readonly list: Answer<ReadonlyArray<KekUsage>>
    /** The registered keys that are not retired, without a count of the credentials that name them. */
    readonly live: Answer<ReadonlyArray<RegisteredKey>>
    /** Counts the stored credentials that name keys other than the given ones, by key, each as far as `limit`. */
    readonly missing: (
      kek_ids: ReadonlyArray<string>,
      limit?: number
    ) => Effect.Effect<ReadonlyArray<{ readonly kek_id: string; readonly credentials: number }>>
    /** Up to `limit` credentials that name one of the keys, in order of key and id. */
    readonly naming: (kek_ids: ReadonlyArray<string>, limit: number) => Answer<ReadonlyArray<NamingCredential>>
    /**
     * Locks up to `size` credentials that name another key than `primary`, after the batch whose `next` is `after`, but
     * none that is locked. Stores what `rewrap` returns for those that have not changed: the whole batch, or nothing if
     * the key store is unavailable. `rewrap` gets two bytes of `sealed` and may be called again.
     */
    readonly rewrapBatch: (
      batch: { readonly primary: string; readonly after: string | undefined; readonly size: number },
      rewrap: Rewrapper["Service"]["rewrap"]
    ) => Answer<RewrappedBatch, KeyStoreUnavailable>
  }
>()("byok/KekRegistry") {}

/** Rewraps data keys under the primary key of the keyring, without opening what they seal. */
export class Rewrapper extends Context.Service<
  Rewrapper,
  {
    readonly primary: string
    /** The ids of all keys of the keyring, primary first. */
    readonly kek_ids: ReadonlyArray<string>
    /** Counts wraps against the limit of the primary key. Call it before making them. */
    readonly spend: (wraps: number) => Effect.Effect<void, KeyStoreUnavailable>
    /** A data key that cannot be rewrapped is a failed `Result`; only an unavailable key store fails the effect. */
    readonly rewrap: (
      sealed: SealedKey,
      context: SealingContext
    ) => Effect.Effect<Result.Result<Pick<SealedKey, "kek_id" | "wrapped_dek">, RewrapFailure>, KeyStoreUnavailable>
  }
>()("byok/Rewrapper") {}

/** The keyring could not be reloaded; the instance keeps the one it has. */
export class KeyringNotReloaded extends Data.TaggedError("KeyringNotReloaded")<{ readonly message: string }> {}

/** Reloads the keyring of a running instance, one reload at a time, and logs the outcome. */
export class KeyringReload extends Context.Service<
  KeyringReload,
  { readonly reload: Effect.Effect<{ readonly kek_ids: ReadonlyArray<string> }, KeyringNotReloaded> }
>()("byok/KeyringReload") {}
