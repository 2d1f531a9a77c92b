import { Context } from "effect"
import type { AccountId, ApiKeyHash } from "../domain/Identifiers.ts"

/** Whether each request is a line in the log. */
export const AccessLog = Context.Reference<boolean>("byok/AccessLog", { defaultValue: () => false })

/** What is learned of a request's caller while it is answered. */
export interface RequestLogContext {
  api_key_hash?: ApiKeyHash
  account_id?: AccountId
}

/** Of the current request; none unless it is logged. */
export const CurrentRequestLog = Context.Reference<RequestLogContext | undefined>("byok/CurrentRequestLog", {
  defaultValue: () => undefined
})

/** The status, on no wire, of a request whose client left before it was answered: nginx has it too. */
export const clientGone = 499

/** The status with which the connection of a request of Node's was closed in place of its answer. */
export const refusals = new WeakMap<object, number>()
