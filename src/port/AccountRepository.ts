import { Context, type DateTime, type Option } from "effect"
import type { AccountId, ApiKeyHash, WorkspaceId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Stores accounts, their workspaces and the hashes of their API keys. Returns false or none for an unknown id. */
export class AccountRepository extends Context.Service<
  AccountRepository,
  {
    readonly hasAccounts: Answer<boolean>
    readonly exists: (account_id: AccountId) => Answer<boolean>
    /**
     * Stores the account with its default workspace and first API key. Stores nothing if the account `exists`,
     * `differs` in its name or was `deleted`. If this key is also stored, returns `created`: the call is a retry.
     */
    readonly createAccount: (
      account: { readonly account_id: AccountId; readonly name: string },
      workspace: NewWorkspace,
      key: NewApiKey
    ) => Answer<"created" | "exists" | "differs" | "deleted">
    /** Returns up to `limit` accounts after the id `after`, in order of id. */
    readonly listAccounts: (after: AccountId | undefined, limit: number) => Answer<ReadonlyArray<Account>>
    /**
     * Deletes the next part of an account; repeat it until `done`. Each call deletes up to `limit` credentials and
     * idempotency records, the first also API keys and links, the last the account. Marks workspaces deleted at `at`.
     */
    readonly eraseAccount: (
      account_id: AccountId,
      at: DateTime.Utc,
      limit: number
    ) => Answer<Option.Option<ErasureStep>>
    readonly createWorkspace: (account_id: AccountId, workspace: NewWorkspace) => Answer<boolean>
    readonly findWorkspace: (workspace_id: WorkspaceId) => Answer<Option.Option<{ readonly account_id: AccountId }>>
    /** Makes a workspace the default of its account. Returns false if it is deleted. */
    readonly makeDefault: (account_id: AccountId, workspace_id: WorkspaceId) => Answer<boolean>
    /**
     * Deletes a workspace, of this account if one is passed, at a time that repeated calls do not change (D43). With
     * `keepIfInUse`, keeps a default workspace that has credentials; a create in it happens before or after.
     */
    readonly deleteWorkspace: (
      workspace_id: WorkspaceId,
      at: DateTime.Utc,
      keepIfInUse?: boolean,
      account_id?: AccountId
    ) => Answer<Option.Option<WorkspaceDeletion>>
    /** Returns up to `limit` workspaces from `first` on, in order of creation; none if there is no such workspace. */
    readonly listWorkspaces: (
      account_id: AccountId,
      first: WorkspaceId | undefined,
      limit: number
    ) => Answer<ReadonlyArray<Workspace>>
    /** Adds a key unless another one has its hash. Repeating a call has the same result. */
    readonly addApiKey: (account_id: AccountId, key: NewApiKey) => Answer<"added" | "hash taken" | "no account">
    /** Revokes a key, of this account if one is passed. Returns when it was revoked, which repeated calls do not change. */
    readonly revokeApiKey: (
      hash: ApiKeyHash,
      at: DateTime.Utc,
      account_id?: AccountId
    ) => Answer<Option.Option<DateTime.Utc>>
    /** Returns up to `limit` keys from `first` on, in order of creation; none if there is no such key. */
    readonly listApiKeys: (
      account_id: AccountId,
      first: ApiKeyHash | undefined,
      limit: number
    ) => Answer<ReadonlyArray<ApiKeyRecord>>
    /** Returns up to `limit` keys that may send requests: live ordinary ones. */
    readonly listClientKeys: (
      account_id: AccountId,
      limit: number
    ) => Answer<ReadonlyArray<Pick<ApiKeyRecord, "hash" | "name">>>
  }
>()("byok/AccountRepository") {}

export interface Account {
  readonly account_id: AccountId
  readonly name: string
  readonly created_at: DateTime.Utc
}

export interface NewWorkspace {
  readonly workspace_id: WorkspaceId
  readonly name: string
  readonly created_at: DateTime.Utc
}

export interface Workspace extends NewWorkspace {
  readonly is_default: boolean
  readonly deleted_at: DateTime.Utc | null
}

/** When a workspace was deleted, null if it was kept, and how many credentials it has. */
export interface WorkspaceDeletion extends Pick<Workspace, "deleted_at"> {
  readonly credentials: number
}

export interface NewApiKey {
  readonly hash: ApiKeyHash
  readonly name: string
  readonly role: ApiKeyRole
  readonly created_at: DateTime.Utc
}

export interface ApiKeyRecord extends NewApiKey {
  readonly revoked_at: DateTime.Utc | null
}

/** How many rows one step of the deletion of an account deleted. */
export interface ErasureStep {
  readonly credentials: number
  readonly idempotency_records: number
  /** Whether this step deleted the account itself, the last of its rows. */
  readonly done: boolean
}

/** Finds the workspace of a new credential: the requested one, or else the account's default (section 4.1, D6, D43). */
export class WorkspaceResolver extends Context.Service<
  WorkspaceResolver,
  {
    /** None if the workspace is unknown, another account's or deleted. */
    readonly resolve: (account_id: AccountId, requested: WorkspaceId | undefined) => Answer<Option.Option<WorkspaceId>>
  }
>()("byok/WorkspaceResolver") {}
