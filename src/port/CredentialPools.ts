import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { Provider } from "../domain/Provider.ts"
import type { Cooldown, ParkedCause } from "../domain/routing/Health.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"

export interface PoolOwner {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
}

/** What the row of a pool says; a pool that never had a credential is at 0. */
export interface PoolState {
  /** Rises with every change of a credential that a plan may see. Rewrapping its key is none. */
  readonly version: string
  /** Rises with every change of a parking or of the mark of a leaked key. */
  readonly health: string
  readonly members: number
  /** Of the lists and sealed keys of its credentials. */
  readonly bytes: number
}

/** What is stored of a key's health: for the model, or for every one if that is ''. */
export interface StoredParking extends Omit<Cooldown, "until" | "cause"> {
  readonly model: string
  /** `succeeded` ended the epoch before. A newer version may have stored other causes. */
  readonly cause: ParkedCause | "succeeded"
  /** Milliseconds to its end by the database's clock, negative if that has passed; null without an end. */
  readonly remaining: number | null
}

/** A credential of a pool, with everything that a router needs. */
export interface PoolRow {
  readonly credential: Credential
  readonly sealed: SealedKey
  readonly key_version: number
  /** Changes with every committed change of the row, whoever made it. */
  readonly row: string
}

/** A pool in one snapshot of the database. */
interface StoredPool extends PoolState {
  readonly rows: ReadonlyArray<PoolRow> | undefined
  /** Of the current keys, by their credentials. */
  readonly parkings: ReadonlyMap<CredentialId, ReadonlyArray<StoredParking>>
}

/** A workspace, and its pools in the order of the providers that were asked for. */
export interface PoolVersions {
  readonly workspace_id: WorkspaceId
  readonly pools: ReadonlyArray<PoolState>
}

/** The credentials of a workspace and provider, as routers read them. */
export class CredentialPools extends Context.Service<
  CredentialPools,
  {
    /**
     * The workspace, which is the account's default one unless one is named, and its pools in the order of the providers.
     * Costs the same however large they are. None if the account has no such workspace, or has deleted it (E19).
     */
    readonly versions: (
      owner: Pick<PoolOwner, "account_id"> & { readonly workspace_id?: WorkspaceId },
      providers: ReadonlyArray<Provider>
    ) => Answer<Option.Option<PoolVersions>>
    /**
     * The same of the account of an API key with its role, without pools if it has no such workspace. None if the key is unknown or revoked.
     */
    readonly versionsOfKey: (
      key: { readonly api_key_hash: ApiKeyHash; readonly workspace_id?: WorkspaceId },
      providers: ReadonlyArray<Provider>
    ) => Answer<
      Option.Option<{
        readonly account_id: AccountId
        readonly role: ApiKeyRole
        readonly found: Option.Option<PoolVersions>
      }>
    >
    /**
     * A pool and its parkings in one snapshot, without `rows` if its version is `known`. None as for `versions`. Before it is
     * read, `admit` is told how many bytes its parkings take, about.
     */
    readonly load: (
      owner: PoolOwner,
      provider: Provider,
      known?: string,
      admit?: (bytes: number) => Answer<void>
    ) => Answer<Option.Option<StoredPool>>
  }
>()("byok/CredentialPools") {}
