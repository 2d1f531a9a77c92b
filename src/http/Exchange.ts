import { Context } from "effect"
import type { AccountId, ApiKeyHash } from "../domain/Identifiers.ts"

/** What is learned of a request's caller while it is answered. */
export interface Exchange {
  api_key_hash?: ApiKeyHash
  account_id?: AccountId
}

/** Of the current request; none unless it is logged. */
export const CurrentExchange = Context.Reference<Exchange | undefined>("byok/CurrentExchange", {
  defaultValue: () => undefined
})
