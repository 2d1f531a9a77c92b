import { Context, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId, ApiKeyHash, CredentialId } from "../domain/Identifiers.ts"
import type { Prefetched } from "./Prefetched.ts"

/** A live API key. */
export interface FoundApiKey {
  readonly account_id: AccountId
  readonly management: boolean
  /** What the same statement has read for the rest of the request, if the adapter does so. */
  readonly prefetched?: Prefetched
}

/** Looks up API keys by hash. A revoked key is unknown from the next lookup on (D42). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    /** `reading` is the credential that the key is about to read. */
    readonly find: (
      hash: ApiKeyHash,
      reading?: CredentialId
    ) => Effect.Effect<Option.Option<FoundApiKey>, ServiceUnavailable>
    /** Returns those of the hashes that are live keys of the account (D24). */
    readonly ownedBy: (
      account_id: AccountId,
      hashes: ReadonlyArray<ApiKeyHash>
    ) => Effect.Effect<ReadonlySet<ApiKeyHash>, ServiceUnavailable>
  }
>()("byok/ApiKeys") {}
