import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { Provider } from "../domain/Provider.ts"
import type { Cooldown, ParkedCause } from "../domain/routing/Health.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Reads pools for routers. A pool has all credentials of one workspace for one provider. */
export class CredentialPools extends Context.Service<
  CredentialPools,
  {
    /** The database's time, in milliseconds since 1970. */
    readonly time: Answer<number>
    /**
     * The states of a workspace's pools in the order of the providers, by default of the default workspace.
     * None if the workspace is unknown or deleted (E19). Takes no longer for large pools.
     */
    readonly versions: (
      owner: Pick<PoolOwner, "account_id"> & { readonly workspace_id?: WorkspaceId },
      providers: ReadonlyArray<Provider>
    ) => Answer<Option.Option<PoolVersions>>
    /** Account, role and `versions` of an API key; none if it is unknown or revoked. */
    readonly versionsOfKey: (
      key: { readonly api_key_hash: ApiKeyHash; readonly workspace_id?: WorkspaceId },
      providers: ReadonlyArray<Provider>
    ) => Answer<
      Option.Option<{
        readonly account_id: AccountId
        readonly role: ApiKeyRole
        readonly versions: Option.Option<PoolVersions>
      }>
    >
    /**
     * Reads a pool and its parkings in one snapshot, without `rows` if it still has `knownVersion`. Returns none for an
     * unknown or deleted workspace. First calls `admit` with the size of the pool, to take memory.
     */
    readonly load: (
      owner: PoolOwner,
      provider: Provider,
      knownVersion?: string,
      admit?: (size: PoolSize) => Answer<void>
    ) => Answer<Option.Option<StoredPool>>
  }
>()("byok/CredentialPools") {}

/** Whose pools to read: a workspace of an account. */
export interface PoolOwner {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
}

/** Versions and size of a pool; all 0 if it never had a credential. */
export interface PoolState {
  /** Rises with every change of a credential that can change a plan; not when a key is rewrapped. */
  readonly version: string
  /** Rises with every change of a parking (a cooldown of a key) or of the mark of a leaked key. */
  readonly health: string
  /** Number of credentials. */
  readonly members: number
  /** Total bytes of lists and sealed keys. */
  readonly bytes: number
}

/** What reading a pool takes beside the sizes in its state. */
export interface PoolSize {
  /** Approximate bytes of the parkings in memory. */
  readonly parkings: number
  /** How many elements the lists of its credentials have together; 0 if its rows are not read. */
  readonly elements: number
}

/** The stored cooldown of a key for a model, or for every model if `model` is ''. */
export interface StoredParking extends Omit<Cooldown, "until" | "cause"> {
  readonly model: string
  /**
   * `succeeded` is stored for a null `cause` of `Cooldown`: a success began this epoch, and no refusal followed. A newer
   * version of the service may have stored causes that this type lacks.
   */
  readonly cause: ParkedCause | "succeeded"
  /** Milliseconds to its end by the database's clock, negative if past; null without an end. */
  readonly remaining: number | null
}

/** A credential of a pool, with everything that a router needs. */
export interface PoolRow {
  readonly credential: Credential
  readonly sealed: SealedKey
  readonly key_version: number
  /** Opaque version of the row: changes with every committed change. */
  readonly row: string
}

/** A pool in one snapshot of the database. */
export interface StoredPool extends PoolState {
  /** Undefined if the pool still has `knownVersion`. */
  readonly rows: ReadonlyArray<PoolRow> | undefined
  /** Parkings of the credentials' current keys. */
  readonly parkings: ReadonlyMap<CredentialId, ReadonlyArray<StoredParking>>
}

/** A workspace, and its pools in the order of the requested providers. */
export interface PoolVersions {
  readonly workspace_id: WorkspaceId
  readonly pools: ReadonlyArray<PoolState>
}
