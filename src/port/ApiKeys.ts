import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { StoredCredential } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

export interface PrefetchedRow<A> {
  readonly id: CredentialId
  /** None if the account has no such credential. */
  readonly found: Option.Option<A>
}

/** Rows that were read along with the API key, so a get takes one statement, a create and an update two. Adapters may ignore them. */
export interface Prefetched {
  readonly account_id: AccountId
  /** The account's default workspace, null if it is deleted; undefined if it was not read. */
  readonly default_workspace_id?: WorkspaceId | null
  /** Whether a key of the account is marked as leaked, or was when it was replaced; undefined if that was not read. */
  readonly has_marks?: boolean
  /** The credential that the request asks for. */
  readonly credential?: PrefetchedRow<Credential>
  /** The same with its sealed key. */
  readonly sealed?: PrefetchedRow<StoredCredential>
}

export interface FoundApiKey {
  readonly account_id: AccountId
  readonly role: ApiKeyRole
  /** Rows that the same statement read for the rest of the request, if the adapter does so. */
  readonly prefetched?: Prefetched
}

/** Looks up API keys by hash. A revoked key is unknown from the next lookup on (D42). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /** `reading` is the credential that the key is about to read, perhaps with its sealed key. */
    readonly find: (hash: ApiKeyHash, reading?: CredentialId, isSealed?: boolean) => Answer<Option.Option<FoundApiKey>>
    /** Returns those of the hashes that are live keys of the account (D24). */
    readonly ownedBy: (account_id: AccountId, hashes: ReadonlyArray<ApiKeyHash>) => Answer<ReadonlySet<ApiKeyHash>>
  }
>()("byok/ApiKeys") {}
