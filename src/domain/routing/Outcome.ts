/** What an attempt says about the credential it used. Only a rate limit says when to come back, in milliseconds. */
export type Outcome =
  | { readonly _tag: "Succeeded" }
  | { readonly _tag: "RateLimited"; readonly retry_after: number | null }
  | { readonly _tag: "QuotaExhausted" }
  | { readonly _tag: "Rejected" }
  | { readonly _tag: "Forbidden" }
  | { readonly _tag: "UpstreamFailed" }
  | { readonly _tag: "RequestRefused" }
  | { readonly _tag: "Abandoned" }

/** What an upstream answered. */
export interface UpstreamAnswer {
  /** Null if there was none. */
  readonly status: number | null
  /** The codes and types in the body of an error, in any case. */
  readonly codes: ReadonlyArray<string>
  /** The header `Retry-After`. */
  readonly retry_after: string | null
}

const quotaCodes = new Set([
  "insufficient_quota",
  "credit_balance_exhausted",
  "billing_hard_limit_reached",
  "quota_exceeded",
  "billing_error"
])

/** Google's `API_KEY_INVALID` comes with 400. */
const keyCodes = new Set(["invalid_api_key", "api_key_invalid", "authentication_error"])

/** `Retry-After` in milliseconds, given as seconds or as a date; null if it is neither, or asks for no wait. */
const millisecondsOf = (header: string | null, now: number): number | null => {
  const text = header?.trim() ?? ""
  const wait = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now
  return wait > 0 ? wait : null
}

/** What an upstream's answer says about the key. A code is more specific than a status: a spent quota is often a 429. */
export const outcomeOf = ({ codes, retry_after, status }: UpstreamAnswer, now: number): Outcome => {
  if (status === null || status < 200 || status === 408 || status >= 500) return { _tag: "UpstreamFailed" }
  if (status < 400) return { _tag: "Succeeded" }
  const has = (known: ReadonlySet<string>) => codes.some((code) => known.has(code.toLowerCase()))
  if (status === 402 || has(quotaCodes)) return { _tag: "QuotaExhausted" }
  if (status === 401 || has(keyCodes)) return { _tag: "Rejected" }
  if (status === 429) return { _tag: "RateLimited", retry_after: millisecondsOf(retry_after, now) }
  if (status === 403) return { _tag: "Forbidden" }
  return { _tag: "RequestRefused" }
}
