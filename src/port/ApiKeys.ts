import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { StoredCredential } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** A longer credential is not read along with the key, but once its account may hold it until it is sent. */
export const mostPrefetched = 16 * 1024

export interface PrefetchedRow<A> {
  readonly id: CredentialId
  /** None if the account has no such credential. */
  readonly row: Option.Option<A>
}

/** Rows read along with the API key, so a get takes one statement, a create and an update two. Optional for adapters. */
export interface Prefetched {
  readonly account_id: AccountId
  /** The default workspace, null if deleted; undefined if not read. */
  readonly default_workspace_id?: WorkspaceId | null
  /** Whether a key of the account is marked as leaked, or was when replaced; undefined if not read. */
  readonly has_marks?: boolean
  /** The requested credential; undefined also if it has more than `mostPrefetched` bytes. */
  readonly credential?: PrefetchedRow<Credential>
  /** The requested credential with its sealed key; undefined likewise. */
  readonly sealed?: PrefetchedRow<StoredCredential>
  /** How many bytes the lists and the sealed key of that credential have. */
  readonly bytes?: number
}

export interface ResolvedApiKey {
  readonly account_id: AccountId
  readonly role: ApiKeyRole
  /** Rows that the same statement read for the request. */
  readonly prefetched?: Prefetched
}

/** Looks up API keys by hash. A revoked key is unknown from the next lookup on (D42). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /** `reading` is the credential to prefetch, with its sealed key if `isSealed`. */
    readonly find: (
      hash: ApiKeyHash,
      reading?: CredentialId,
      isSealed?: boolean
    ) => Answer<Option.Option<ResolvedApiKey>>
    /** Returns the hashes that are live keys of the account (D24). */
    readonly ownedBy: (account_id: AccountId, hashes: ReadonlyArray<ApiKeyHash>) => Answer<ReadonlySet<ApiKeyHash>>
  }
>()("byok/ApiKeys") {}
