import type { Provider } from "../Provider.ts"
import { errorRuleFor, isSuccess } from "./providerErrors/errorRuleFor.ts"
import { retryAfterMillis } from "./RetryAfter.ts"
import { type UpstreamError, upstreamErrorIn } from "./providerErrors/UpstreamError.ts"

/**
 * The result of an attempt with a credential. `NotServed` (the key or its provider does not serve this request),
 * `RequestRefused` (the upstream faults the request) and `Abandoned` (it ended without a result) say nothing about the
 * key. `retry_after` is in milliseconds. `answer` is what the upstream answered, if known.
 */
export type Outcome =
  | { readonly _tag: "Succeeded" }
  | { readonly _tag: "RateLimited"; readonly retry_after: number | null }
  | { readonly _tag: "QuotaExhausted" }
  | { readonly _tag: "Rejected" }
  | { readonly _tag: "Forbidden" }
  | { readonly _tag: "NotServed" }
  | { readonly _tag: "UpstreamFailed" }
  | { readonly _tag: "RequestRefused"; readonly answer?: RefusedAnswer }
  | { readonly _tag: "Abandoned" }

/** The status with which an upstream refused a request, and the code of its error, if that is plain. */
export interface RefusedAnswer {
  readonly status: number
  readonly code: string | null
}

/** The name of each outcome in the answer to a report. */
export const outcomeNames = {
  Succeeded: "succeeded",
  RateLimited: "rate_limited",
  QuotaExhausted: "quota_exhausted",
  Rejected: "rejected",
  Forbidden: "forbidden",
  NotServed: "not_served",
  UpstreamFailed: "upstream_failed",
  RequestRefused: "request_refused",
  Abandoned: "abandoned"
} as const satisfies Record<Outcome["_tag"], string>

/** The answer of an upstream to an attempt, as far as it decides the outcome. */
export interface UpstreamAnswer {
  readonly provider: Provider
  /** Null without an answer. */
  readonly status: number | null
  /** The start of an error's body, or the first event of a stream that failed; null if it has none. */
  readonly body: string | null
  /** The header `Retry-After`, or a number of seconds. */
  readonly retry_after: string | number | null
}

/** What a status means of which no rule knows the code. */
const outcomeByStatus = (status: number): Outcome["_tag"] => {
  switch (status) {
    case 401:
      return "Rejected"
    case 402:
      return "QuotaExhausted"
    case 403:
      return "Forbidden"
    case 404:
    case 405:
    case 410:
      return "NotServed"
    case 429:
      return "RateLimited"
    case 408:
    case 424:
    case 498:
      return "UpstreamFailed"
    default:
      return status < 200 || status >= 500 ? "UpstreamFailed" : status < 400 ? "Succeeded" : "RequestRefused"
  }
}

/** Some providers answer 200 with the status of the error as its code; any other error after 200 is the provider's. */
const statusWithin = (error: UpstreamError): number =>
  error.codes.map(Number).find((code) => Number.isInteger(code) && code >= 400 && code < 600) ?? 500

/** A code to show: of at most 64 visible ASCII characters. */
const plainCode = (codes: ReadonlyArray<string>) => codes.find((code) => /^[!-~]{1,64}$/.test(code)) ?? null

/** Classifies an upstream's answer; `now` is in milliseconds since 1970. A known error outranks the status. */
export const outcomeOf = ({ body, provider, retry_after, status }: UpstreamAnswer, now: number): Outcome => {
  if (status === null) return { _tag: "UpstreamFailed" }
  const error = upstreamErrorIn(body)
  if (isSuccess(status) && error?.isExplicit !== true) return { _tag: "Succeeded" }
  const rule = errorRuleFor(provider, status, error ?? { codes: [], messages: [] })
  const _tag = rule?.outcome ?? outcomeByStatus(error && isSuccess(status) ? statusWithin(error) : status)
  if (_tag === "RequestRefused") return { _tag, answer: { status, code: plainCode(error?.codes ?? []) } }
  if (_tag !== "RateLimited") return { _tag }
  const waits = [retry_after, error?.retry_after ?? null].map((value) => retryAfterMillis(value, now))
  return { _tag, retry_after: waits.find((wait) => wait !== null) ?? null }
}
