import type { Outcome } from "./Outcome.ts"

/** Why an attempt with a key failed. */
export const failureCauses = ["rate_limited", "quota_exhausted", "rejected", "forbidden", "upstream_failed"] as const
export type FailureCause = (typeof failureCauses)[number]

/** When a credential was last used, in milliseconds since 1970; null if it never was, as far as is known. */
export interface LastUse {
  readonly last_leased_at: number | null
  readonly last_succeeded_at: number | null
  readonly last_failed_at: number | null
  readonly last_failure: FailureCause | null
  /** The version of the key that failed then. */
  readonly last_failed_version: number | null
}

export const neverUsed: LastUse = {
  last_leased_at: null,
  last_succeeded_at: null,
  last_failed_at: null,
  last_failure: null,
  last_failed_version: null
}

export const leasedAt = (last_leased_at: number): LastUse => ({ ...neverUsed, last_leased_at })

const failures: Readonly<Partial<Record<Outcome["_tag"], FailureCause>>> = {
  RateLimited: "rate_limited",
  QuotaExhausted: "quota_exhausted",
  Rejected: "rejected",
  Forbidden: "forbidden",
  UpstreamFailed: "upstream_failed"
}

/** What an outcome shows: `neverUsed` if it says neither that the key served nor that it failed. */
export const reportedAt = ({ _tag }: Outcome, at: number, last_failed_version: number): LastUse => {
  if (_tag === "Succeeded") return { ...neverUsed, last_succeeded_at: at }
  const last_failure = failures[_tag]
  return last_failure === undefined
    ? neverUsed
    : { ...neverUsed, last_failed_at: at, last_failure, last_failed_version }
}

const later = (one: number | null, other: number | null): number | null =>
  one === null || (other !== null && other > one) ? other : one

/** What two observations show together: the later of each time. */
export const laterUse = (one: LastUse, other: LastUse): LastUse => {
  const last_failed_at = later(one.last_failed_at, other.last_failed_at)
  const { last_failed_version, last_failure } = last_failed_at === one.last_failed_at ? one : other
  return {
    last_leased_at: later(one.last_leased_at, other.last_leased_at),
    last_succeeded_at: later(one.last_succeeded_at, other.last_succeeded_at),
    last_failed_at,
    last_failure,
    last_failed_version
  }
}

/** Failures that the upstream blames on the key. */
export const keyFailures: ReadonlyArray<FailureCause> = ["rejected", "forbidden", "quota_exhausted"]

/** Whether the upstream refused the current key when it was last tried, and has not accepted it since. */
export const isFailing = (used: LastUse, key_version: number): boolean =>
  used.last_failure !== null &&
  keyFailures.includes(used.last_failure) &&
  used.last_failed_version === key_version &&
  (used.last_succeeded_at ?? -Infinity) < (used.last_failed_at ?? -Infinity)
