import { Context, type Option } from "effect"
import type { AccountId, ApiKeyHash, CredentialId } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { Answer } from "./DatabaseFailure.ts"
import type { Prefetched } from "./Prefetched.ts"

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
