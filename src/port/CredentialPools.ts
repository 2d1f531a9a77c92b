import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, WorkspaceId } from "../domain/Identifiers.ts"
import type { Provider } from "../domain/Provider.ts"
import type { Cooldown, ParkedCause } from "../domain/routing/Health.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** A workspace and the account that owns it. */
export interface PoolOwner {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
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
  readonly parkings: ReadonlyArray<StoredParking>
}

/** A pool in one snapshot of the database. */
export interface StoredPool {
  readonly version: string
  readonly rows: ReadonlyArray<PoolRow>
}

/** The credentials of a workspace and provider, as routers read them. */
export class CredentialPools extends Context.Service<
  CredentialPools,
  {
    /**
     * The version of each pool, in the order of the providers. It changes with every committed change of a credential
     * or parking in the pool, whoever made it. None if the account has no such workspace, or has deleted it (E19).
     */
    readonly versions: (
      owner: PoolOwner,
      providers: ReadonlyArray<Provider>
    ) => Answer<Option.Option<ReadonlyArray<string>>>
    /** A pool and its version, read in one snapshot. None under the same conditions as `versions`. */
    readonly load: (owner: PoolOwner, provider: Provider) => Answer<Option.Option<StoredPool>>
  }
>()("byok/CredentialPools") {}
