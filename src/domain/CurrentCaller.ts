import { Context } from "effect"
import type { AccountId } from "./AccountId.ts"

/** The account on whose behalf one request is made, provided per request. */
export class CurrentCaller extends Context.Service<CurrentCaller, { readonly account_id: AccountId }>()(
  "byok/CurrentCaller"
) {}
