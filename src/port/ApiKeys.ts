import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { StoredCredential } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Maximum bytes of a prefetched credential. A longer one is read after memory for it is admitted. */
export const maxPrefetchedBytes = 16 * 1024

export interface PrefetchedRow<A> {
  readonly id: CredentialId
  /** None if the account has no such credential. */
  readonly row: Option.Option<A>
}

/** Rows read together with the API key, so a get takes one statement, a create and an update two. Optional for adapters. */
export interface Prefetched {
  readonly account_id: AccountId
  /** The default workspace, null if deleted; undefined if not read. */
  readonly default_workspace_id?: WorkspaceId | null
  /** Whether a key of the account is marked as leaked, or was until it was replaced; undefined if not read. */
  readonly has_marks?: boolean
  /** The requested credential; undefined also if it has more than `maxPrefetchedBytes` bytes. */
  readonly credential?: PrefetchedRow<Credential>
  /** The requested credential with its sealed key; undefined likewise. */
  readonly sealed?: PrefetchedRow<StoredCredential>
  /** Total bytes of the credential's lists, and of its sealed key if read. */
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
    /** Finds a live key. `prefetch` is the credential to read with it. */
    readonly find: (
      hash: ApiKeyHash,
      prefetch?: CredentialId,
      withSealedKey?: boolean
    ) => Answer<Option.Option<ResolvedApiKey>>
    /** Returns those of the hashes that are live keys of the account (D24). */
    readonly ownedBy: (account_id: AccountId, hashes: ReadonlyArray<ApiKeyHash>) => Answer<ReadonlySet<ApiKeyHash>>
  }
>()("byok/ApiKeys") {}
