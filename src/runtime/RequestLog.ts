import { Context } from "effect"
import type { AccountId, ApiKeyHash, CredentialId, LinkId } from "../domain/Identifiers.ts"

/** A credential in the access log; null for shared capacity. */
interface LoggedKey {
  readonly provider: string
  readonly credential_id: CredentialId | null
}

/** What the line of the access log says of a request beside its route and answer: ids and our own words only. */
export interface RequestLog {
  api_key_hash?: ApiKeyHash
  link_id?: LinkId
  account_id?: AccountId
  /** The attempt that was handed out. */
  attempt?: LoggedKey
  /** The results that were reported. */
  reported?: Array<LoggedKey & { readonly account_id: AccountId; readonly outcome: string }>
}

/** The log of the current request, to be filled in; undefined unless requests are logged. */
export const CurrentRequestLog = Context.Reference<RequestLog | undefined>("byok/CurrentRequestLog", {
  defaultValue: () => undefined
})
