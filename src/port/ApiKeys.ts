import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { Answer } from "./DatabaseFailure.ts"

/**
 * Rows that the look-up of the caller's API key read in the same statement, for one request. Adapters on the same
 * database answer from them instead of asking again; other adapters ignore them.
 */
export interface Prefetched {
  readonly account_id: AccountId
  /** The account's default workspace, null if it is deleted; undefined if it was not read. */
  readonly default_workspace_id?: WorkspaceId | null
  /** The credential that the request asks for; none if the account has no such credential. */
  readonly credential?: { readonly id: CredentialId; readonly found: Option.Option<Credential> }
}

export const Prefetched = Context.Reference<Prefetched | undefined>("byok/Prefetched", {
  defaultValue: () => undefined
})

/** A live API key. */
export interface FoundApiKey {
  readonly account_id: AccountId
  readonly management: boolean
  /** Rows that the same statement read for the rest of the request, if the adapter does so. */
  readonly prefetched?: Prefetched
}

/** Looks up API keys by hash. A revoked key is unknown from the next lookup on (D42). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /** `reading` is the credential that the key is about to read. */
    readonly find: (hash: ApiKeyHash, reading?: CredentialId) => Answer<Option.Option<FoundApiKey>>
    /** Returns those of the hashes that are live keys of the account (D24). */
    readonly ownedBy: (account_id: AccountId, hashes: ReadonlyArray<ApiKeyHash>) => Answer<ReadonlySet<ApiKeyHash>>
  }
>()("byok/ApiKeys") {}
