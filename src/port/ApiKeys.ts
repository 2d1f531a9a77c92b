import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { StoredCredential } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Looks up API keys by hash. A revoked key is unknown from the next lookup on (D42). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /** Finds a live key. Also reads the credential `prefetch`, with its sealed key if `withSealedKey`. */
    readonly find: (
      hash: ApiKeyHash,
      prefetch?: CredentialId,
      withSealedKey?: boolean
    ) => Answer<Option.Option<ResolvedApiKey>>
    /** Returns the hashes that belong to live keys of the account (D24). */
    readonly ownedBy: (account_id: AccountId, hashes: ReadonlyArray<ApiKeyHash>) => Answer<ReadonlySet<ApiKeyHash>>
  }
>()("byok/ApiKeys") {}

/** Maximum bytes of a prefetched credential. A larger one is read once memory for it is reserved. */
export const maxPrefetchedBytes = 16 * 1024

export interface PrefetchedRow<A> {
  readonly id: CredentialId
  /** None if the account has no such credential. */
  readonly row: Option.Option<A>
}

/** Rows read together with the API key, which saves each request a statement. Adapters may leave any of them out. */
export interface Prefetched {
  readonly account_id: AccountId
  /** The id of the default workspace, null if that is deleted; undefined if not read. */
  readonly default_workspace_id?: WorkspaceId | null
  /**
   * Whether the account has a leak mark, even one of a replaced key: if not, a search for marked keys needs no query.
   * Undefined if not read.
   */
  readonly has_marks?: boolean
  /** The credential to prefetch, without its sealed key; undefined also if it exceeds `maxPrefetchedBytes`. */
  readonly credential?: PrefetchedRow<Credential>
  /** Replaces `credential` if `withSealedKey`; undefined in the same cases. */
  readonly sealed?: PrefetchedRow<StoredCredential>
  /** Total bytes of the credential's lists, and of its sealed key if `withSealedKey`. */
  readonly bytes?: number
}

export interface ResolvedApiKey {
  readonly account_id: AccountId
  readonly role: ApiKeyRole
  readonly prefetched?: Prefetched
}
