import type { Outcome } from "./Outcome.ts"
import type { Clock } from "effect"

/**
 * Whether routers may try a credential for a model. It is parked during a cooldown, then on trial: one request tries
 * it. `until`, in milliseconds since 1970, is the end of the parking or trial; null if only replacing the key ends the
 * parking.
 */
export type Availability =
  | { readonly _tag: "Free" }
  | { readonly _tag: "OnTrial"; readonly until: number }
  | { readonly _tag: "Parked"; readonly cause: ParkedCause; readonly until: number | null }

/**
 * The refusals of a key by its upstream, for one model or for all, and how long routers leave it alone. Times are in
 * milliseconds of the process's monotonic clock. Cooldowns are ordered by `key_version`, `epoch` and `until`; joining
 * two keeps the higher: reports and stored rows may be joined in any order, any number of times, with the same result.
 */
export interface Cooldown {
  readonly key_version: number
  /** Number of successes that ended refusals. Each begins a new epoch, in which earlier refusals no longer count. */
  readonly epoch: number
  /** End of the cooldown; `-Infinity` without a refusal in this epoch. */
  readonly until: number
  /** Number of refusals in this epoch. Those of concurrent leases count as one. */
  readonly strikes: number
  /** Null without a refusal in this epoch. */
  readonly cause: CooldownCause | null
}

/** Why an upstream refused a key. */
export const cooldownCauses = ["rate_limited", "quota_exhausted", "forbidden", "rejected"] as const
export type CooldownCause = (typeof cooldownCauses)[number]

/** Why a credential is parked: the upstream's refusal, or a known leak. */
export const parkedCauses = [...cooldownCauses, "leaked"] as const
export type ParkedCause = (typeof parkedCauses)[number]

/** Decodes a stored cause. An unknown one, of a newer version, counts as the gravest. */
export const cooldownCauseOf = (cause: string): CooldownCause =>
  cooldownCauses.find((known) => known === cause) ?? "rejected"

/** The model name that stands for the whole key. */
export const wholeKey = ""

/** The cooldowns of a key by model, and by `wholeKey`. */
export type Cooldowns = ReadonlyMap<string, Cooldown>

/** The cooldowns of a key, as a whole and for one model, when a lease begins. */
export interface Health {
  readonly whole: Cooldown
  readonly model: Cooldown
}

// All durations are in milliseconds.
const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** Maximum cooldown, whatever an upstream asks for. */
export const longestCooldown = hour

/** How long after its end a cooldown still counts: its key is on trial, and a further refusal adds a strike. */
const forgottenAfter = hour

/** How long a process remembers a report: as long as the longest cooldown counts. */
export const rememberedFor = longestCooldown + forgottenAfter

/**
 * Minimum time for which the database keeps a cooldown after its end: longer than a process remembers it, even after a
 * long attempt.
 */
export const sweptAfter = rememberedFor + 2 * hour

/** Cause, scope, and first and longest cooldown of each refusal. */
const refusals = {
  RateLimited: { cause: "rate_limited", scope: "model", first: 5 * second, longest: 5 * minute },
  QuotaExhausted: { cause: "quota_exhausted", scope: "whole", first: minute, longest: hour },
  Rejected: { cause: "rejected", scope: "whole", first: minute, longest: hour },
  // A 403 of which no rule knows the code says little.
  Forbidden: { cause: "forbidden", scope: "model", first: 5 * second, longest: 5 * minute }
} as const
type Refusal = Extract<Outcome, { readonly _tag: keyof typeof refusals }>

const isRefusal = (outcome: Outcome): outcome is Refusal => outcome._tag in refusals

/** The bare 403 of a row that counts against the key. */
const tellingForbidden = 3

/**
 * Whether a refusal blames the key itself, so that its owner should know: a rejected key and a spent quota at once, a
 * bare 403 once it is the third refusal in a row.
 */
export const isBlamed = <A extends { readonly cause: string; readonly strikes: number }>(
  one: A
): one is A & { readonly cause: Exclude<CooldownCause, "rate_limited"> } =>
  one.cause === "rejected" ||
  one.cause === "quota_exhausted" ||
  (one.cause === "forbidden" && one.strikes >= tellingForbidden)

/** Why an upstream refused a key; undefined for other outcomes. */
export const refusalCauseOf = (outcome: Outcome): CooldownCause | undefined =>
  isRefusal(outcome) ? refusals[outcome._tag].cause : undefined

/**
 * The cooldown of a key version that was never refused: below all others of this version, above those of replaced keys.
 */
export const initialCooldown = (key_version: number): Cooldown => ({
  key_version,
  epoch: 0,
  until: Number.NEGATIVE_INFINITY,
  strikes: 0,
  cause: null
})

/** The cooldown when a lease began, as far as a report depends on it. */
export const cooldownAt = (key_version: number, { epoch, strikes }: Pick<Cooldown, "epoch" | "strikes">): Cooldown => ({
  ...initialCooldown(key_version),
  epoch,
  strikes
})

/** Orders cooldowns: negative if `one` is below `other`. Strikes and cause break ties. */
export const compare = (one: Cooldown, other: Cooldown): number =>
  one.key_version - other.key_version ||
  one.epoch - other.epoch ||
  // The difference of two infinities is NaN.
  (one.until === other.until ? 0 : one.until - other.until) ||
  one.strikes - other.strikes ||
  (one.cause === other.cause ? 0 : (one.cause ?? "") < (other.cause ?? "") ? -1 : 1)

/** The higher of two cooldowns. */
export const join = (one: Cooldown, other: Cooldown): Cooldown => (compare(one, other) < 0 ? other : one)

/** Drops the strikes of a cooldown that no longer counts. Keeps its version, epoch and end, which order it. */
export const expireStrikes = (cooldown: Cooldown, now: number): Cooldown =>
  cooldown.strikes > 0 && now >= cooldown.until + forgottenAfter ? { ...cooldown, strikes: 0, cause: null } : cooldown

/** The health of a key for a model, without the strikes that no longer count. */
export const healthIn = (cooldowns: Cooldowns, key_version: number, model: string, now: number): Health => ({
  whole: expireStrikes(cooldowns.get(wholeKey) ?? initialCooldown(key_version), now),
  model: expireStrikes(cooldowns.get(model) ?? initialCooldown(key_version), now)
})

/** Follows the upstream's `Retry-After` up to an hour; otherwise each strike doubles the cooldown. */
const cooldownAfter = (refusal: Refusal, strikes: number): number => {
  if (refusal._tag === "RateLimited" && refusal.retry_after !== null && refusal.retry_after >= 0) {
    return Math.min(refusal.retry_after, longestCooldown)
  }
  const { first, longest } = refusals[refusal._tag]
  return Math.min(first * 2 ** (strikes - 1), longest)
}

const afterRefusal = (before: Cooldown, refusal: Refusal, now: number): Cooldown => {
  const strikes = before.strikes + 1
  return { ...before, strikes, until: now + cooldownAfter(refusal, strikes), cause: refusals[refusal._tag].cause }
}

/** A success after refusals begins a new epoch; a success of a free key changes nothing. */
const afterSuccess = (before: Cooldown): Cooldown =>
  before.strikes === 0 ? before : { ...initialCooldown(before.key_version), epoch: before.epoch + 1 }

/**
 * The health after an outcome, to be joined with what other reports say. Computed only from the health when the lease
 * began and from when the upstream answered, so that concurrent refusals and repeated reports count once.
 */
export const contributionOf = (atLease: Health, outcome: Outcome, answered_at: number): Health => {
  if (outcome._tag === "Succeeded") return { whole: afterSuccess(atLease.whole), model: afterSuccess(atLease.model) }
  if (!isRefusal(outcome)) return atLease
  const { scope } = refusals[outcome._tag]
  return { ...atLease, [scope]: afterRefusal(atLease[scope], outcome, answered_at) }
}

/** The cooldown with strikes that ends last; undefined if neither cooldown has strikes. */
const lastToEnd = ({ model, whole }: Health): Cooldown | undefined => {
  const [earlier, later] = whole.until < model.until ? [whole, model] : [model, whole]
  return later.strikes > 0 ? later : earlier.strikes > 0 ? earlier : undefined
}

/** Whether a key may be tried now. A leaked key is parked until it is replaced. */
export const availabilityOf = (health: Health, leaked: boolean, now: Moment): Availability => {
  if (leaked) return { _tag: "Parked", cause: "leaked", until: null }
  const cooldown = lastToEnd(health)
  if (cooldown === undefined || cooldown.cause === null) return { _tag: "Free" }
  const remaining = Math.ceil(cooldown.until - now.monotonic)
  const end = now.wall + remaining
  return remaining > 0
    ? { _tag: "Parked", cause: cooldown.cause, until: end }
    : { _tag: "OnTrial", until: end + forgottenAfter }
}

/** A moment: milliseconds of the monotonic clock, and since 1970. */
export interface Moment {
  readonly monotonic: number
  readonly wall: number
}

/** Reads the monotonic clock of cooldowns and snapshots, in milliseconds. */
export const monotonicMillis = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

export const momentOf = (clock: Clock.Clock): Moment => ({
  monotonic: monotonicMillis(clock),
  wall: clock.currentTimeMillisUnsafe()
})
