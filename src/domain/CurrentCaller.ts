import { Context } from "effect"
import type { AccountId } from "./AccountId.ts"
import type { ApiKeyHash } from "./ApiKeyHash.ts"

/** The account on whose behalf one request is made, provided per request, and over HTTP the key that made it. */
export class CurrentCaller extends Context.Service<
  CurrentCaller,
  { readonly account_id: AccountId; readonly api_key_hash?: ApiKeyHash }
>()("byok/CurrentCaller") {}
