import { Context, Data, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { ChangeableField } from "../domain/CredentialChanges.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { StoredState } from "../domain/routing/CredentialStatus.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"
import type { IdempotencyRecord } from "./IdempotencyRecords.ts"

/** Stores credentials with their sealed keys. Each call reads and changes rows of one account only. */
export class CredentialRepository extends Context.Service<
  CredentialRepository,
  {
    /**
     * Stores the credential and its idempotency record, if any, durably: both or neither. No other transaction can
     * delete the workspace meanwhile. Stores nothing and returns none if the account has another credential's record
     * with that `key_hash`; waits for a concurrent insert of one.
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
    /** A page ordered by `created_at`, then `id`, and the number of all matches, in one snapshot. */
    readonly list: (
      account_id: AccountId,
      page: CredentialPage
    ) => Answer<{ readonly credentials: ReadonlyArray<Credential>; readonly total_count: number }>
    /** The next part of the credentials of an account, over all workspaces. */
    readonly scan: (account_id: AccountId, scan: CredentialScan) => Answer<ReadonlyArray<ScannedCredential>>
    /** Stores an update, or returns false if its revision is no longer the stored one. */
    readonly update: (account_id: AccountId, update: CredentialUpdate) => Answer<boolean, PoolFull>
    /** Removes the row with its sealed key, but not the idempotency record. Returns false for an unknown id. */
    readonly delete: (account_id: AccountId, id: CredentialId) => Answer<boolean>
    /** Stores an order of distinct ids (L14). Stores nothing and returns a mismatch if an id is missing or foreign. */
    readonly reorder: (account_id: AccountId, order: CredentialOrder) => Answer<Option.Option<OrderMismatch>>
  }
>()("byok/CredentialRepository") {}

/** A credential before the store assigns `sort_order` (D32) and `created_at`, by one clock for all instances. */
export type UnstoredCredential = Omit<Credential, "sort_order" | "created_at">

export interface StoredCredential {
  readonly credential: Credential
  readonly sealed: SealedKey
  /** Counts versions of the credential from 1. A rewrap of its key makes none. */
  readonly revision: number
  /** Counts the provider keys that it has had, from 1. */
  readonly key_version: number
  readonly workspace_deleted: boolean
}

/** A credential that replaces one revision. */
export interface CredentialUpdate {
  readonly credential: Credential
  /** The revision that was read. The next one is stored. */
  readonly revision: number
  /** The newly sealed key; undefined if the key stays as it is. */
  readonly sealed: SealedKey | undefined
  readonly key_version: number
  /** The members that differ from the revision that was read. */
  readonly fields: ReadonlyArray<ChangeableField>
}

/** Filters the credentials of a workspace; skips `offset` matches and returns up to `limit`. */
export interface CredentialPage {
  readonly workspace_id: WorkspaceId
  readonly provider?: string | undefined
  readonly state?: StoredState
  /** Only those that are as old as this many days, and were not leased since. */
  readonly unused_for?: number
  /** Prefix of name or label, or suffix of the label, ignoring case. */
  readonly q?: string
  readonly offset: number
  readonly limit: number
  readonly memory?: PageMemory
}

/** Memory for an answer: the bytes `taken` for its lists, and how to take more. */
export interface PageMemory {
  readonly taken: number
  readonly take: (bytes: number) => Answer<void>
}

/** Filters the credentials of an account; up to `limit`, in order of workspace, `created_at` and `id`. */
export interface CredentialScan {
  readonly workspace_id: WorkspaceId | undefined
  readonly provider: string | undefined
  readonly state?: StoredState | undefined
  readonly unused_for?: number | undefined
  /** The last credential of the previous scan. */
  readonly after: Credential | undefined
  readonly limit: number
}

export type ScannedCredential = Credential & { readonly state: StoredState }

/** The order of attempts for a workspace and provider. */
export interface CredentialOrder {
  readonly workspace_id: WorkspaceId
  readonly provider: string
  readonly ids: ReadonlyArray<CredentialId>
}

/** Credentials that an order misses, and ids in it that are not of the workspace and provider. */
export interface OrderMismatch {
  readonly missing: ReadonlyArray<CredentialId>
  readonly foreign: ReadonlyArray<CredentialId>
}

/** The workspace of a new credential is unknown, another account's or deleted; nothing was stored. */
export class WorkspaceGone extends Data.TaggedError("WorkspaceGone") {}

/** Limits for the credentials of one provider in a workspace: a plan reads and verifies all of them. */
export class PoolLimits extends Context.Service<
  PoolLimits,
  {
    readonly credentials: number
    /** Total bytes of the credentials' lists and sealed keys. */
    readonly bytes: number
  }
>()("byok/PoolLimits") {}

/** The credentials of the provider in the workspace would exceed one of the `PoolLimits`; nothing was stored. */
export class PoolFull extends Data.TaggedError("PoolFull")<{
  readonly unit: keyof PoolLimits["Service"]
  readonly limit: number
}> {}
