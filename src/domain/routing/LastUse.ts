import { Schema, SchemaTransformation } from "effect"
import { cooldownCauses, refusalCauseOf } from "./Health.ts"
import type { Outcome } from "./Outcome.ts"

export const unusedForForm = "be a number of days from 1d to 9999d"

/** For how many days a credential was not used: `90d`, decoded to 90. */
export const UnusedFor = Schema.String.annotate({ message: `must ${unusedForForm}, given once` })
  .check(Schema.isPattern(/^[1-9]\d{0,3}d$/, { message: `must ${unusedForForm}, given once` }))
  .pipe(
    Schema.decodeTo(
      Schema.Int,
      SchemaTransformation.transform({ decode: (text) => parseInt(text), encode: (days) => `${days}d` })
    )
  )

/** Why an attempt failed, if that concerns the key or its upstream. */
export const failureCauses = [...cooldownCauses, "upstream_failed"] as const
export type FailureCause = (typeof failureCauses)[number]

/** When a credential was last used. Times are in milliseconds since 1970; null if never. */
export interface LastUse {
  readonly last_leased_at: number | null
  readonly last_succeeded_at: number | null
  readonly last_failed_at: number | null
  readonly last_failure: FailureCause | null
  /** The key version that failed. */
  readonly last_failed_version: number | null
  /** When the upstream last blamed the request, not the key; with its status and the code of its error, if plain. */
  readonly last_refused_at: number | null
  readonly last_refused_status: number | null
  readonly last_refused_code: string | null
  /** The first of the refused requests in a row; null after a success. */
  readonly refused_since: number | null
  /** At least so many requests were refused in a row, without a success; at most `longestRow`. */
  readonly refused_in_a_row: number
}

export const neverUsed: LastUse = {
  last_leased_at: null,
  last_succeeded_at: null,
  last_failed_at: null,
  last_failure: null,
  last_failed_version: null,
  last_refused_at: null,
  last_refused_status: null,
  last_refused_code: null,
  refused_since: null,
  refused_in_a_row: 0
}

export const useFromLease = (last_leased_at: number): LastUse => ({ ...neverUsed, last_leased_at })

/** The use to record of an ended attempt; `neverUsed` if its outcome says nothing about the key, upstream or request. */
export const useFromOutcome = (outcome: Outcome, at: number, last_failed_version: number): LastUse => {
  if (outcome._tag === "Succeeded") return { ...neverUsed, last_succeeded_at: at }
  if (outcome._tag === "RequestRefused") {
    const { code = null, status = null } = outcome.answer ?? {}
    const refused = { last_refused_at: at, last_refused_status: status, last_refused_code: code }
    return { ...neverUsed, ...refused, refused_since: at, refused_in_a_row: 1 }
  }
  const last_failure = outcome._tag === "UpstreamFailed" ? "upstream_failed" : refusalCauseOf(outcome)
  return last_failure === undefined
    ? neverUsed
    : { ...neverUsed, last_failed_at: at, last_failure, last_failed_version }
}

const later = (one: number | null, other: number | null): number | null =>
  one === null || (other !== null && other > one) ? other : one

/** Whether one row of refused requests ended before the other began. */
const isBefore = (one: LastUse, other: LastUse): boolean =>
  one.last_refused_at !== null && other.refused_since !== null && one.last_refused_at < other.refused_since

/** Refused requests that are counted in a row. */
export const longestRow = 1000

/** The row of refused requests that two uses make up. Of rows at the same time only the longer counts. */
const mergeRows = (one: LastUse, other: LastUse, last_succeeded_at: number | null) => {
  const [a = neverUsed, b = neverUsed] = [one, other].filter(
    ({ last_refused_at }) => (last_refused_at ?? -Infinity) > (last_succeeded_at ?? -Infinity)
  )
  const isSum = isBefore(a, b) || isBefore(b, a)
  const count = isSum ? a.refused_in_a_row + b.refused_in_a_row : Math.max(a.refused_in_a_row, b.refused_in_a_row)
  const began = [a, b].flatMap(({ refused_since }) => refused_since ?? [])
  return {
    refused_since: began.length === 0 ? null : Math.min(...began),
    refused_in_a_row: Math.min(count, longestRow)
  }
}

/** Merges two uses: the later of each time, the later failure and refused request, and the row of refused requests. */
export const mergeUses = (one: LastUse, other: LastUse): LastUse => {
  const last_succeeded_at = later(one.last_succeeded_at, other.last_succeeded_at)
  const last_failed_at = later(one.last_failed_at, other.last_failed_at)
  const last_refused_at = later(one.last_refused_at, other.last_refused_at)
  const { last_failed_version, last_failure } = last_failed_at === one.last_failed_at ? one : other
  const { last_refused_code, last_refused_status } = last_refused_at === one.last_refused_at ? one : other
  return {
    last_leased_at: later(one.last_leased_at, other.last_leased_at),
    last_succeeded_at,
    last_failed_at,
    last_failure,
    last_failed_version,
    last_refused_at,
    last_refused_status,
    last_refused_code,
    ...mergeRows(one, other, last_succeeded_at)
  }
}

/** Failures that the upstream blames on the key. */
export const keyFailures: ReadonlyArray<FailureCause> = ["rejected", "forbidden", "quota_exhausted"]

/** Refused requests in a row after which a key counts as failing. */
export const failingRow = 10

/**
 * Whether the last failure is one of `keyFailures`, is of the current key, and no success followed; or the upstream
 * refused the last `failingRow` requests.
 */
export const isFailing = (lastUse: LastUse, key_version: number): boolean =>
  lastUse.refused_in_a_row >= failingRow ||
  (lastUse.last_failure !== null &&
    keyFailures.includes(lastUse.last_failure) &&
    lastUse.last_failed_version === key_version &&
    (lastUse.last_succeeded_at ?? -Infinity) < (lastUse.last_failed_at ?? -Infinity))
