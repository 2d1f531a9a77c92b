import { Context, type Option } from "effect"
import type { AccountId, ApiKeyHash } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Looks up API keys by hash. A revoked key is unknown from the next lookup on (D42). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /** Finds a live key. */
    readonly find: (hash: ApiKeyHash) => Answer<Option.Option<ResolvedApiKey>>
    /** Returns the hashes that belong to live keys of the account (D24). */
    readonly ownedBy: (account_id: AccountId, hashes: ReadonlyArray<ApiKeyHash>) => Answer<ReadonlySet<ApiKeyHash>>
  }
>()("byok/ApiKeys") {}

export interface ResolvedApiKey {
  readonly account_id: AccountId
  readonly role: ApiKeyRole
}
