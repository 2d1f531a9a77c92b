import type { Outcome } from "./Outcome.ts"
import type { Clock } from "effect"

/**
 * Whether a credential may be tried for a model. After a cooldown it is on trial: one request tries it. `until` is in
 * milliseconds since 1970; null if there is no end before the key is replaced.
 */
export type Availability =
  | { readonly _tag: "Free" }
  | { readonly _tag: "OnTrial"; readonly until: number }
  | { readonly _tag: "Parked"; readonly cause: ParkedCause; readonly until: number | null }

/**
 * What attempts have shown of a key: a value of a lattice, ordered by `key_version`, `epoch` and `until`, whose join is the
 * maximum. Reports, stored rows and reads each contribute a value, so that neither their order nor their repetition nor the
 * number of processes changes what they amount to. Times are in milliseconds of one monotonic clock.
 */
export interface Cooldown {
  readonly key_version: number
  /** How often the key has succeeded on trial: each time ends the refusals of the epochs before. */
  readonly epoch: number
  /** No attempts before then; `-Infinity` if the key was not refused in this epoch. */
  readonly until: number
  /** Refusals in this epoch. Those of leases that were out together count as one. */
  readonly strikes: number
  /** Null if the key was not refused in this epoch. */
  readonly cause: CooldownCause | null
}

/** What an upstream's refusal says of a key. */
export const cooldownCauses = ["rate_limited", "quota_exhausted", "forbidden", "rejected"] as const
export type CooldownCause = (typeof cooldownCauses)[number]

/** Why a credential is parked: what the upstream answered, or that its key is known to have leaked. */
export const parkedCauses = [...cooldownCauses, "leaked"] as const
export type ParkedCause = (typeof parkedCauses)[number]

/** A stored cause. One that only a newer version knows is treated as the gravest. */
export const cooldownCauseOf = (cause: string): CooldownCause =>
  cooldownCauses.find((known) => known === cause) ?? "rejected"

/** Stands for the whole key where cooldowns are by model. */
export const wholeKey = ""

/** The cooldowns of a key by model; that of the whole key under `wholeKey`. */
export type Cooldowns = ReadonlyMap<string, Cooldown>

/** What a lease is made under: the cooldown of the whole key, and that of the key with its model. */
export interface Health {
  readonly whole: Cooldown
  readonly model: Cooldown
}

const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** The longest cooldown, however often a key is refused and whatever an upstream asks for. */
export const longestCooldown = hour

/** How long after its end a cooldown still counts. Then the key is as if it had never been refused. */
const forgottenAfter = hour

/** How long a process remembers a report: until every cooldown after it is over and forgotten. */
export const rememberedFor = longestCooldown + forgottenAfter

/** When the database forgets a cooldown, after its end: no process remembers it, even if it learned of it by a long attempt. */
export const sweptAfter = rememberedFor + 2 * hour

const refusals = {
  RateLimited: { cause: "rate_limited", scope: "model", first: 5 * second, longest: 5 * minute },
  QuotaExhausted: { cause: "quota_exhausted", scope: "whole", first: minute, longest: hour },
  Rejected: { cause: "rejected", scope: "whole", first: minute, longest: hour },
  Forbidden: { cause: "forbidden", scope: "model", first: minute, longest: hour }
} as const
type Refusal = Extract<Outcome, { readonly _tag: keyof typeof refusals }>

const isRefusal = (outcome: Outcome): outcome is Refusal => outcome._tag in refusals

/** The cooldown of a key that nothing is known of: below every other of its version and above those of replaced keys. */
export const unknown = (key_version: number): Cooldown => ({
  key_version,
  epoch: 0,
  until: Number.NEGATIVE_INFINITY,
  strikes: 0,
  cause: null
})

/** Negative if `one` is below `other`. Strikes and cause only decide between ends at the same millisecond. */
export const compare = (one: Cooldown, other: Cooldown): number =>
  one.key_version - other.key_version ||
  one.epoch - other.epoch ||
  // The difference of two infinities is not a number.
  (one.until === other.until ? 0 : one.until - other.until) ||
  one.strikes - other.strikes ||
  (one.cause === other.cause ? 0 : (one.cause ?? "") < (other.cause ?? "") ? -1 : 1)

/** The greater of two cooldowns of a credential. */
export const join = (one: Cooldown, other: Cooldown): Cooldown => (compare(one, other) < 0 ? other : one)

/** Without the strikes of a cooldown that is long over. It keeps its place in the order. */
export const remembered = (cooldown: Cooldown, now: number): Cooldown =>
  cooldown.strikes > 0 && now >= cooldown.until + forgottenAfter ? { ...cooldown, strikes: 0, cause: null } : cooldown

/** What cooldowns of a key amount to for a model. */
export const healthIn = (cooldowns: Cooldowns, key_version: number, model: string, now: number): Health => ({
  whole: remembered(cooldowns.get(wholeKey) ?? unknown(key_version), now),
  model: remembered(cooldowns.get(model) ?? unknown(key_version), now)
})

/** An upstream that says when to come back is believed, up to an hour. Otherwise each strike doubles the cooldown. */
const cooldownAfter = (refusal: Refusal, strikes: number): number => {
  if (refusal._tag === "RateLimited" && refusal.retry_after !== null && refusal.retry_after >= 0) {
    return Math.min(refusal.retry_after, longestCooldown)
  }
  const { first, longest } = refusals[refusal._tag]
  return Math.min(first * 2 ** (strikes - 1), longest)
}

const refused = (at: Cooldown, refusal: Refusal, now: number): Cooldown => {
  const strikes = at.strikes + 1
  return { ...at, strikes, until: now + cooldownAfter(refusal, strikes), cause: refusals[refusal._tag].cause }
}

/** A success on trial ends the epoch. One of a key that was free says nothing. */
const succeeded = (at: Cooldown): Cooldown =>
  at.strikes === 0 ? at : { ...unknown(at.key_version), epoch: at.epoch + 1 }

/**
 * What the outcome of a lease contributes, by the health that the lease was made under and by nothing else. A refusal of a
 * model counts for the whole key if it `folds`: too many of its models are refused.
 */
export const contributed = (at: Health, outcome: Outcome, now: number, folds = false): Health => {
  if (outcome._tag === "Succeeded") return { whole: succeeded(at.whole), model: succeeded(at.model) }
  if (!isRefusal(outcome)) return at
  const scope = folds ? "whole" : refusals[outcome._tag].scope
  return { ...at, [scope]: refused(at[scope], outcome, now) }
}

/** The cooldown that decides: the one that ends last. None if the key is free. */
const decisive = ({ model, whole }: Health): Cooldown | undefined => {
  const [first, last] = whole.until < model.until ? [whole, model] : [model, whole]
  return last.strikes > 0 ? last : first.strikes > 0 ? first : undefined
}

/** Whether a key may be tried now. A leaked key may not until it is replaced. */
export const availabilityOf = (health: Health, leaked: boolean, now: Moment): Availability => {
  if (leaked) return { _tag: "Parked", cause: "leaked", until: null }
  const last = decisive(health)
  if (last === undefined || last.cause === null) return { _tag: "Free" }
  const remaining = Math.ceil(last.until - now.monotonic)
  const until = now.wall + remaining
  return remaining > 0
    ? { _tag: "Parked", cause: last.cause, until }
    : { _tag: "OnTrial", until: until + forgottenAfter }
}

/** One moment on the clock of cooldowns, and in milliseconds since 1970. */
export interface Moment {
  readonly monotonic: number
  readonly wall: number
}

/** Milliseconds of the monotonic clock, which nobody sets: the time of cooldowns and snapshots. */
export const monotonicMillis = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

export const momentOf = (clock: Clock.Clock): Moment => ({
  monotonic: monotonicMillis(clock),
  wall: clock.currentTimeMillisUnsafe()
})
