import { Context, type DateTime, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId, ApiKeyHash, WorkspaceId } from "../domain/Identifiers.ts"

export interface Account {
  readonly account_id: AccountId
  readonly name: string
  readonly created_at: DateTime.Utc
}

export interface Workspace {
  readonly workspace_id: WorkspaceId
  readonly name: string
  readonly is_default: boolean
  readonly created_at: DateTime.Utc
  readonly deleted_at: DateTime.Utc | null
}

export interface ApiKeyRecord {
  readonly hash: ApiKeyHash
  readonly name: string
  readonly management: boolean
  readonly created_at: DateTime.Utc
  readonly revoked_at: DateTime.Utc | null
}

/** How much one step of an erasure deleted. */
export interface ErasureStep {
  readonly credentials: number
  readonly receipts: number
  /** Whether the account is gone, with everything in it. */
  readonly done: boolean
}

/** Stores accounts, their workspaces and the hashes of their API keys. Returns false or none for an unknown id. */
export class AccountRepository extends Context.Service<
  AccountRepository,
  {
    readonly hasAccounts: Effect.Effect<boolean, ServiceUnavailable>
    /** Stores the account with its default workspace and first API key, or nothing at all. */
    readonly createAccount: (
      account: { readonly account_id: AccountId; readonly name: string },
      workspace: Omit<Workspace, "is_default" | "deleted_at">,
      key: Omit<ApiKeyRecord, "revoked_at">
    ) => Effect.Effect<void, ServiceUnavailable>
    /** Returns up to `limit` accounts whose ids come after `after`, in order of their ids. */
    readonly listAccounts: (
      after: AccountId | undefined,
      limit: number
    ) => Effect.Effect<ReadonlyArray<Account>, ServiceUnavailable>
    /**
     * Deletes a part of an account: the first step its API keys, so that nothing can be added, each step up to `limit`
     * credentials and idempotency records, and the last one the account. None if there is no such account.
     */
    readonly eraseAccount: (
      account_id: AccountId,
      at: DateTime.Utc,
      limit: number
    ) => Effect.Effect<Option.Option<ErasureStep>, ServiceUnavailable>
    readonly createWorkspace: (
      account_id: AccountId,
      workspace: Omit<Workspace, "is_default" | "deleted_at">
    ) => Effect.Effect<boolean, ServiceUnavailable>
    /** Returns when the workspace was deleted, which repeated calls do not change (D43). */
    readonly deleteWorkspace: (
      workspace_id: WorkspaceId,
      at: DateTime.Utc
    ) => Effect.Effect<Option.Option<DateTime.Utc>, ServiceUnavailable>
    readonly listWorkspaces: (account_id: AccountId) => Effect.Effect<ReadonlyArray<Workspace>, ServiceUnavailable>
    readonly addApiKey: (
      account_id: AccountId,
      key: Omit<ApiKeyRecord, "revoked_at">
    ) => Effect.Effect<boolean, ServiceUnavailable>
    /** Adds a key unless its hash is taken. A repeated call with equal arguments is not told apart from the first. */
    readonly importApiKey: (
      account_id: AccountId,
      key: Omit<ApiKeyRecord, "revoked_at">
    ) => Effect.Effect<"imported" | "hash taken" | "no account", ServiceUnavailable>
    /** Returns when the key was revoked, which repeated calls do not change. */
    readonly revokeApiKey: (
      hash: ApiKeyHash,
      at: DateTime.Utc
    ) => Effect.Effect<Option.Option<DateTime.Utc>, ServiceUnavailable>
    readonly listApiKeys: (account_id: AccountId) => Effect.Effect<ReadonlyArray<ApiKeyRecord>, ServiceUnavailable>
  }
>()("byok/AccountRepository") {}
