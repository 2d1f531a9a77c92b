import { Data } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Outcome } from "../domain/routing/Outcome.ts"
import type { Issue } from "../domain/Issue.ts"
import type { Exclusion } from "../domain/routing/Plan.ts"
import { errorResponse } from "../http/Envelope.ts"
import type { NextAttempt } from "../service/routing/NextAttempt.ts"

/** A request that gets no key, and when its caller may repeat it, in milliseconds from now; undefined if that is unknown. */
export class Denial extends Data.TaggedError("Denial")<{
  readonly error: {
    readonly code: number
    readonly message: string
    readonly metadata?: { readonly issues: ReadonlyArray<Issue> }
  }
  readonly retry_after?: number | undefined
}> {
  static readonly of = (code: number, message: string, retry_after?: number) =>
    new this({ error: { code, message }, retry_after })
}

/** Until when upstreams limit the rate of a key that nothing else excludes; undefined for other keys. */
const limitedUntil = ([exclusion, ...others]: ReadonlyArray<Exclusion>) =>
  exclusion?.reason === "parked" && exclusion.cause === "rate_limited" && others.length === 0
    ? (exclusion.until ?? undefined)
    : undefined

const reasonOf = (exclusion: Exclusion) =>
  exclusion.reason === "parked" ? `parked: ${exclusion.cause}` : exclusion.reason

/**
 * Why no key is left: 429 if one only has to wait for its upstream, 503 if the upstream failed or another request tries a
 * key, the upstream's own status if it blames the request, otherwise 402.
 */
export const denialAfter = (
  outcome: Outcome | undefined,
  next: Pick<NextAttempt, "past" | "plan"> | undefined,
  status: number | null = null,
  now: number
) => {
  if (outcome?._tag === "UpstreamFailed") return Denial.of(503, "The provider failed", 1000)
  if (next === undefined || outcome?._tag === "NotServed") {
    return Denial.of(status ?? 400, "The provider refused the request")
  }
  if (next.past.some(({ result }) => result === "on_trial"))
    return Denial.of(503, "Another request tries the key", 1000)
  const verdicts = next.plan().providers.flatMap(({ credentials }) => credentials)
  const ends = verdicts.flatMap(({ exclusions }) => limitedUntil(exclusions) ?? [])
  if (ends.length > 0) return Denial.of(429, "The provider limits the rate of the key", Math.min(...ends) - now)
  if (verdicts.length === 0) return Denial.of(402, "No key of this provider is stored")
  const reasons = Array.from(new Set(verdicts.flatMap(({ exclusions }) => exclusions.map(reasonOf))))
  return Denial.of(402, ["No key of this provider can be used", ...reasons].join("; "))
}

const secondsOf = (millis: number) => String(Math.max(1, Math.ceil(millis / 1000)))

/** Encodes a denial. `status` hides the real one, which `X-Byok-Error` still names, with a sentence. */
export const denialResponse = ({ error, retry_after }: Denial, status = error.code) => {
  const issues = (error.metadata?.issues ?? []).map(({ message, path }) => `${path.join(".")} ${message}`)
  const sentence = [error.message, ...issues].join(": ")
  const response = errorResponse(
    { error },
    {
      "x-byok-error": `${error.code} ${sentence}`.slice(0, 255),
      ...(retry_after === undefined ? {} : { "retry-after": secondsOf(retry_after) }),
      ...(error.code === 401 ? { "www-authenticate": 'Bearer realm="byok"' } : {})
    }
  )
  return HttpServerResponse.setStatus(response, status)
}

/** Reads a denial back from the headers of a proxy that could not pass on its answer. */
export const denialFrom = (headers: Readonly<Record<string, string | undefined>>) => {
  const [, code, message = ""] = /^([45]\d\d) ([ -~]+)$/.exec(headers["x-byok-error"] ?? "") ?? []
  if (code === undefined) return Denial.of(503, "Service temporarily unavailable", 1000)
  const seconds = /^\d{1,5}$/.exec(headers["x-byok-retry-after"] ?? "")
  return Denial.of(Number(code), message, seconds === null ? undefined : Number(seconds[0]) * 1000)
}
