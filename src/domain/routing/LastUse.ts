import { cooldownCauses, refusalCauseOf } from "./Health.ts"
import type { Outcome } from "./Outcome.ts"

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
}

export const neverUsed: LastUse = {
  last_leased_at: null,
  last_succeeded_at: null,
  last_failed_at: null,
  last_failure: null,
  last_failed_version: null
}

export const useFromLease = (last_leased_at: number): LastUse => ({ ...neverUsed, last_leased_at })

/** The use to record of an ended attempt; `neverUsed` if its outcome says nothing about the key or upstream. */
export const useFromOutcome = (outcome: Outcome, at: number, last_failed_version: number): LastUse => {
  if (outcome._tag === "Succeeded") return { ...neverUsed, last_succeeded_at: at }
  const last_failure = outcome._tag === "UpstreamFailed" ? "upstream_failed" : refusalCauseOf(outcome)
  return last_failure === undefined
    ? neverUsed
    : { ...neverUsed, last_failed_at: at, last_failure, last_failed_version }
}

const later = (one: number | null, other: number | null): number | null =>
  one === null || (other !== null && other > one) ? other : one

/** Merges two uses: the later of each time, and the later failure. */
export const mergeUses = (one: LastUse, other: LastUse): LastUse => {
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

/** Whether the last failure is one of `keyFailures`, is of the current key, and no success followed. */
export const isFailing = (lastUse: LastUse, key_version: number): boolean =>
  lastUse.last_failure !== null &&
  keyFailures.includes(lastUse.last_failure) &&
  lastUse.last_failed_version === key_version &&
  (lastUse.last_succeeded_at ?? -Infinity) < (lastUse.last_failed_at ?? -Infinity)
