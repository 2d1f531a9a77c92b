import { Context } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import type { ApiKeyHash } from "../domain/ApiKeyHash.ts"

/** What is learned of a request's caller while it is answered. */
export interface Exchange {
  api_key_hash?: ApiKeyHash
  account_id?: AccountId
}

/** Of the current request; none unless it is logged. */
export const CurrentExchange = Context.Reference<Exchange | undefined>("byok/CurrentExchange", {
  defaultValue: () => undefined
})
