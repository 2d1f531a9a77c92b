import { Context, type Effect, type Option } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import type { ApiKeyHash } from "../domain/ApiKeyHash.ts"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** Looks up API keys by hash. A revoked key is unknown from the next lookup on (D42). */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    readonly find: (
      hash: ApiKeyHash
    ) => Effect.Effect<
      Option.Option<{ readonly account_id: AccountId; readonly management: boolean }>,
      ServiceUnavailable
    >
    /** Returns those of the hashes that are live keys of the account (D24). */
    readonly ownedBy: (
      account_id: AccountId,
      hashes: ReadonlyArray<ApiKeyHash>
    ) => Effect.Effect<ReadonlySet<ApiKeyHash>, ServiceUnavailable>
  }
>()("byok/ApiKeys") {}
