import { Context, Data, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { ChangeableField } from "../domain/CredentialChanges.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { StoredState } from "../domain/routing/CredentialStatus.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"
import type { IdempotencyRecord } from "./IdempotencyRecords.ts"

/** A credential without what the store assigns: its `sort_order` (D32) and, by one clock for all instances, `created_at`. */
export type UnstoredCredential = Omit<Credential, "sort_order" | "created_at">

export interface StoredCredential {
  readonly credential: Credential
  readonly sealed: SealedKey
  /** Counts the states of the credential from 1. Rewrapping its key does not change it. */
  readonly revision: number
  /** Counts its provider keys from 1. */
  readonly key_version: number
  readonly workspace_deleted: boolean
}

/** A change of a credential, to be stored only if the credential still has the revision that was read. */
export interface CredentialUpdate {
  readonly credential: Credential
  /** The revision that the update was made from. The stored one will be one more. */
  readonly revision: number
  /** The newly sealed key; undefined if the key stays as it is. */
  readonly sealed: SealedKey | undefined
  readonly key_version: number
  /** The members that differ from the revision that was read. */
  readonly fields: ReadonlyArray<ChangeableField>
}

/** Which credentials of a workspace to list: up to `limit` of those that match, after the first `offset`. */
export interface CredentialPage {
  readonly workspace_id: WorkspaceId
  readonly provider?: string | undefined
  readonly state?: StoredState
  /** How the name or the label begins, or the label ends, in any case. */
  readonly q?: string
  readonly offset: number
  readonly limit: number
  readonly memory?: PageMemory
}

/** How many bytes the lists of a page may have as it is read, and what admits more before they are. */
export interface PageMemory {
  readonly within: number
  readonly admit: (bytes: number) => Answer<void>
}

/** Which credentials of an account to read: up to `limit` of those that match, in order of workspace, `created_at` and `id`. */
export interface CredentialScan {
  readonly workspace_id: WorkspaceId | undefined
  readonly provider: string | undefined
  readonly state?: StoredState | undefined
  /** The last credential of the scan before. */
  readonly after: Credential | undefined
  readonly limit: number
}

export type ScannedCredential = Credential & { readonly state: StoredState }

/** The order in which the credentials of a workspace and provider are to be tried. */
export interface CredentialOrder {
  readonly workspace_id: WorkspaceId
  readonly provider: string
  readonly ids: ReadonlyArray<CredentialId>
}

/** How the ids of an order differ from the credentials that it is for. */
export interface OrderMismatch {
  readonly missing: ReadonlyArray<CredentialId>
  readonly foreign: ReadonlyArray<CredentialId>
}

/** The workspace of a new credential is unknown, another account's or deleted; nothing was stored. */
export class WorkspaceGone extends Data.TaggedError("WorkspaceGone") {}

/** The most that a workspace may have of one provider, as a plan reads and proves all of it. */
export interface PoolLimits {
  readonly credentials: number
  /** Of the lists and sealed keys of the credentials together. */
  readonly bytes: number
}
export const PoolLimits = Context.Reference<PoolLimits>("byok/PoolLimits", {
  defaultValue: () => ({ credentials: 1000, bytes: 16 * 1024 * 1024 })
})

/** The workspace has as much of the provider as it may; nothing was stored. */
export class PoolFull extends Data.TaggedError("PoolFull")<{
  readonly of: keyof PoolLimits
  readonly limit: number
}> {}

/** Stores credentials. Every function is confined to one account. */
export class CredentialRepository extends Context.Service<
  CredentialRepository,
  {
    /**
     * Stores the credential and, if one is given, its idempotency record: both or neither. Durable when it succeeds. The
     * workspace cannot be deleted before the credential is stored. Stores nothing and returns none if the account has a
     * record of another credential under that `key_hash`; if one is being stored, waits for its outcome.
     */
    readonly insert: (
      account_id: AccountId,
      credential: UnstoredCredential,
      sealed: SealedKey,
      record?: IdempotencyRecord
    ) => Answer<Option.Option<Credential>, WorkspaceGone | PoolFull>
    readonly findById: (account_id: AccountId, id: CredentialId) => Answer<Option.Option<Credential>>
    /** Finds disabled credentials too. Over HTTP, only an update and a repeated create call this. */
    readonly findSealed: (account_id: AccountId, id: CredentialId) => Answer<Option.Option<StoredCredential>>
    /** A page of credentials ordered by `created_at`, then `id`, and how many match in all, read in one snapshot. */
    readonly list: (
      account_id: AccountId,
      page: CredentialPage
    ) => Answer<{ readonly credentials: ReadonlyArray<Credential>; readonly total_count: number }>
    /** Reads all credentials of an account in parts of any number, whatever their workspace. */
    readonly scan: (account_id: AccountId, scan: CredentialScan) => Answer<ReadonlyArray<ScannedCredential>>
    /** Stores an update if the stored revision is the one that was read; otherwise stores nothing and returns false. */
    readonly update: (account_id: AccountId, update: CredentialUpdate) => Answer<boolean, PoolFull>
    /** Removes the row with its sealed key, not the idempotency record. False if there is no such credential. */
    readonly delete: (account_id: AccountId, id: CredentialId) => Answer<boolean>
    /** Stores an order of distinct ids (L14). Stores nothing and returns a mismatch if an id is missing or foreign. */
    readonly reorder: (account_id: AccountId, order: CredentialOrder) => Answer<Option.Option<OrderMismatch>>
  }
>()("byok/CredentialRepository") {}
