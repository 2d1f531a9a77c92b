import { parseJson } from "../KeyMaterial.ts"

/**
 * The result of an attempt with a credential. `RequestRefused` (the upstream faults the request) and `Abandoned` (it
 * ended without a result) say nothing about the key. `retry_after` is in milliseconds.
 */
export type Outcome =
  | { readonly _tag: "Succeeded" }
  | { readonly _tag: "RateLimited"; readonly retry_after: number | null }
  | { readonly _tag: "QuotaExhausted" }
  | { readonly _tag: "Rejected" }
  | { readonly _tag: "Forbidden" }
  | { readonly _tag: "UpstreamFailed" }
  | { readonly _tag: "RequestRefused" }
  | { readonly _tag: "Abandoned" }

/** The name of each outcome in the answer to a report. */
export const outcomeNames = {
  Succeeded: "succeeded",
  RateLimited: "rate_limited",
  QuotaExhausted: "quota_exhausted",
  Rejected: "rejected",
  Forbidden: "forbidden",
  UpstreamFailed: "upstream_failed",
  RequestRefused: "request_refused",
  Abandoned: "abandoned"
} as const satisfies Record<Outcome["_tag"], string>

/** The answer of an upstream to an attempt, as far as it decides the outcome. */
export interface UpstreamAnswer {
  /** Null without an answer. */
  readonly status: number | null
  /** The start of an error's body; null if it has none. */
  readonly body: string | null
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

/** Codes of an invalid key. Google sends `API_KEY_INVALID` with 400. */
const keyCodes = new Set(["invalid_api_key", "api_key_invalid", "authentication_error"])

/** The three forms of a date in HTTP (RFC 9110, 5.6.7). */
const dateForms = [
  /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?<day>\d\d) (?<month>\w{3}) (?<year>\d{4}) (?<time>[\d:]{8}) GMT$/,
  /^(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?<day>\d\d)-(?<month>\w{3})-(?<year>\d\d) (?<time>[\d:]{8}) GMT$/,
  /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?<month>\w{3}) (?<day>[ \d]\d) (?<time>[\d:]{8}) (?<year>\d{4})$/
]

/** Reads a two-digit year as this century's, unless that is more than 50 years ahead. */
const yearOf = (digits: string, now: number): number => {
  if (digits.length > 2) return Number(digits)
  const thisYear = new Date(now).getUTCFullYear()
  const year = thisYear - (thisYear % 100) + Number(digits)
  return year > thisYear + 50 ? year - 100 : year
}

/** Milliseconds since 1970; NaN unless the text is a date. */
const dateOf = (text: string, now: number): number => {
  const { day = "", month, time, year = "" } = dateForms.map((form) => form.exec(text)?.groups).find(Boolean) ?? {}
  const date = `${day.replace(" ", "0")} ${month} ${yearOf(year, now)} ${time} GMT`
  const at = Date.parse(date)
  // `Date.parse` turns 31 February into March.
  return new Date(at).toUTCString().endsWith(date) ? at : Number.NaN
}

/** Reads `Retry-After` (seconds or a date) as milliseconds; null if malformed, zero or in the past. */
const retryAfterMillis = (header: string | null, now: number): number | null => {
  const text = header?.trim() ?? ""
  const wait = /^\d+(\.\d+)?$/.test(text) ? Math.ceil(Number(text) * 1000) : dateOf(text, now) - now
  return wait > 0 ? wait : null
}

/** Characters of an error's body that are read. */
export const maxBody = 8192

/** The statuses with which `keyCodes` and `quotaCodes` count. With others, the body may echo the request. */
const keyStatuses = [400, 401, 403]
const quotaStatuses = [400, 401, 402, 403, 429]

/**
 * Classifies an upstream's answer; `now` is in milliseconds since 1970. Codes that count outrank the status: a spent
 * quota is often a 429.
 */
export const outcomeOf = ({ body, retry_after, status }: UpstreamAnswer, now: number): Outcome => {
  if (status === null || status < 200 || status === 408 || status >= 500) return { _tag: "UpstreamFailed" }
  if (status < 400) return { _tag: "Succeeded" }
  const codes = errorCodesIn((body ?? "").slice(0, maxBody))
  const hasCodeIn = (set: ReadonlySet<string>) => codes.some((code) => set.has(code.toLowerCase()))
  if (status === 402 || (quotaStatuses.includes(status) && hasCodeIn(quotaCodes))) return { _tag: "QuotaExhausted" }
  if (status === 401 || (keyStatuses.includes(status) && hasCodeIn(keyCodes))) return { _tag: "Rejected" }
  if (status === 429) return { _tag: "RateLimited", retry_after: retryAfterMillis(retry_after, now) }
  if (status === 403) return { _tag: "Forbidden" }
  return { _tag: "RequestRefused" }
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The error codes in `error` and `error.details` of a JSON body. Reads no message, which may echo the request. */
export const errorCodesIn = (body: string): ReadonlyArray<string> => {
  // The body may be a list of one answer.
  const [answer] = [parseJson(body)].flat()
  const error = isRecord(answer) ? answer["error"] : undefined
  if (!isRecord(error)) return []
  const details = [error["details"]].flat().filter(isRecord)
  return [error["code"], error["type"], error["status"], ...details.map(({ reason }) => reason)].filter(
    (code) => typeof code === "string"
  )
}
