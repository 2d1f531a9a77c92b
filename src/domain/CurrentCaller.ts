import { Context } from "effect"
import type { AccountId, ApiKeyHash } from "./Identifiers.ts"

/** The account that a request acts for and, over HTTP, the API key that sent it. Provided per request. */
export class CurrentCaller extends Context.Service<
  CurrentCaller,
  { readonly account_id: AccountId; readonly api_key_hash?: ApiKeyHash }
>()("byok/CurrentCaller") {}
