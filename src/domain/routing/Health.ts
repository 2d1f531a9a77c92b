import type { Outcome } from "./Outcome.ts"

/** Why a credential is parked: what the upstream answered, or that its key is known to have leaked. */
export type ParkedCause = "rate_limited" | "quota_exhausted" | "forbidden" | "rejected" | "leaked"

/** Whether a credential may be tried for a model. After a parking it is on probation: one request tries it. */
export type Availability =
  | { readonly _tag: "Free" }
  | { readonly _tag: "Probing" }
  | { readonly _tag: "Parked"; readonly cause: ParkedCause; readonly until: number | null }

/** A time without attempts after a refusal. Afterwards one lease at a time tries the credential, until one succeeds. */
export interface Pause {
  readonly cause: Exclude<ParkedCause, "leaked">
  /** Refusals since the last success, without those of leases that were out together. */
  readonly strikes: number
  readonly until: number
  /** When the lease was made that is trying the credential now. */
  readonly tried_at: number | null
}

/** What a key's attempts have shown of it: pauses of the whole key, and of models. No success is recorded. */
export interface Health {
  readonly key_version: number
  readonly whole: Pause | null
  readonly models: ReadonlyMap<string, Pause>
}

/** The outcome of a lease. Times are in milliseconds since 1970. */
export interface Report {
  readonly key_version: number
  readonly model: string
  readonly leased_at: number
  readonly reported_at: number
  readonly outcome: Outcome
}

/** Whether a credential may be leased; if so, with its health from then on. */
export type Admission =
  | { readonly _tag: "Admitted"; readonly health: Health | undefined }
  | { readonly _tag: "Refused"; readonly reason: "parked" | "on_trial" }

/** What health depends on besides reports: the version of the key, and whether that is known to have leaked. */
interface Key {
  readonly key_version: number
  readonly leaked: boolean
}

const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** A trial that has not been reported by then is open to the next lease. */
const trialTimeout = 30 * second

/** How long after its end a pause of a model still counts. Then the model is as if it had never been refused. */
const modelMemory = hour

/** As many as an allow list names. A key without one is asked for any model that requests make up. */
const maxModels = 100

const refusals = {
  RateLimited: { cause: "rate_limited", scope: "model", first: 5 * second, longest: 5 * minute },
  QuotaExhausted: { cause: "quota_exhausted", scope: "whole", first: minute, longest: hour },
  Rejected: { cause: "rejected", scope: "whole", first: minute, longest: hour },
  Forbidden: { cause: "forbidden", scope: "model", first: minute, longest: hour }
} as const
type Refusal = Extract<Outcome, { readonly _tag: keyof typeof refusals }>

const isRefusal = (outcome: Outcome): outcome is Refusal => outcome._tag in refusals

/** An upstream that says when to come back is believed, up to an hour. Otherwise each strike doubles the pause. */
const lengthOf = (refusal: Refusal, strikes: number): number => {
  if (refusal._tag === "RateLimited" && refusal.retry_after !== null) return Math.min(refusal.retry_after, hour)
  const { first, longest } = refusals[refusal._tag]
  return Math.min(first * 2 ** (strikes - 1), longest)
}

/** A lease made before the end of a pause was out when it began: it knows nothing that came after. */
const wasOut = (pause: Pause, { leased_at }: Report): boolean => leased_at < pause.until

const isForgotten = (pause: Pause, now: number): boolean => now >= pause.until + modelMemory

const paused = (pause: Pause | null, refusal: Refusal, report: Report): Pause => {
  const together = pause !== null && wasOut(pause, report)
  const strikes = together ? pause.strikes : (pause?.strikes ?? 0) + 1
  const until = report.reported_at + lengthOf(refusal, strikes)
  if (together && until <= pause.until) return pause
  return { cause: refusals[refusal._tag].cause, strikes, until, tried_at: pause?.tried_at ?? null }
}

/** A trial ends with its report, whatever it says. */
const withoutTrial = (pause: Pause | null, { leased_at }: Report): Pause | null =>
  pause?.tried_at === leased_at ? { ...pause, tried_at: null } : pause

const cleared = (pause: Pause | null, report: Report): Pause | null =>
  pause !== null && wasOut(pause, report) ? pause : null

const withModel = (
  models: ReadonlyMap<string, Pause>,
  model: string,
  pause: Pause | null
): ReadonlyMap<string, Pause> => {
  if (pause === (models.get(model) ?? null)) return models
  const changed = new Map(models)
  if (pause === null) changed.delete(model)
  else changed.set(model, pause)
  return changed
}

/**
 * As `withModel`, with at most `maxModels`. What is forgotten makes room; without any, the new pause is not begun: refusals of one model
 * leave the others alone.
 */
const withinLimit = (
  models: ReadonlyMap<string, Pause>,
  model: string,
  pause: Pause | null,
  now: number
): ReadonlyMap<string, Pause> => {
  if (pause === null || models.has(model) || models.size < maxModels) return withModel(models, model, pause)
  const kept = new Map(Array.from(models).filter(([, known]) => !isForgotten(known, now)))
  return kept.size < maxModels ? kept.set(model, pause) : models
}

/** The health after a report, undefined when nothing stands against the key. Reports of replaced keys change nothing. */
export const observe = (health: Health | undefined, report: Report): Health | undefined => {
  const { key_version, model, outcome } = report
  if (health !== undefined && key_version < health.key_version) return health
  const known: Health = health?.key_version === key_version ? health : { key_version, whole: null, models: new Map() }
  const whole = withoutTrial(known.whole, report)
  const ofModel = withoutTrial(known.models.get(model) ?? null, report)
  const after = (changedWhole: Pause | null, changedModel: Pause | null): Health | undefined => {
    const models = withinLimit(known.models, model, changedModel, report.reported_at)
    if (known === health && changedWhole === known.whole && models === known.models) return health
    return changedWhole === null && models.size === 0 ? undefined : { key_version, whole: changedWhole, models }
  }
  if (outcome._tag === "Succeeded") return after(cleared(whole, report), cleared(ofModel, report))
  if (!isRefusal(outcome)) return after(whole, ofModel)
  return refusals[outcome._tag].scope === "whole"
    ? after(paused(whole, outcome, report), ofModel)
    : after(whole, paused(ofModel !== null && isForgotten(ofModel, report.leased_at) ? null : ofModel, outcome, report))
}

/** The pauses of the credential's present key that concern a model. */
const pausesOf = (
  health: Health | undefined,
  { key_version }: Key,
  model: string,
  now: number
): ReadonlyArray<Pause> => {
  if (health?.key_version !== key_version) return []
  const ofModel = health.models.get(model)
  const counted = ofModel === undefined || isForgotten(ofModel, now) ? null : ofModel
  return [health.whole, counted].filter((pause) => pause !== null)
}

/** Whether a credential may be tried for a model now. A leaked one may not until its key is replaced. */
export const availabilityOf = (health: Health | undefined, key: Key, model: string, now: number): Availability => {
  if (key.leaked) return { _tag: "Parked", cause: "leaked", until: null }
  const pauses = pausesOf(health, key, model, now)
  const [last] = pauses.toSorted((one, other) => other.until - one.until)
  if (last === undefined) return { _tag: "Free" }
  return last.until > now ? { _tag: "Parked", cause: last.cause, until: last.until } : { _tag: "Probing" }
}

/** Admits a lease: any number while the credential is free, one at a time while it is on probation. */
export const takeTrial = (health: Health | undefined, key: Key, model: string, now: number): Admission => {
  const availability = availabilityOf(health, key, model, now)
  if (availability._tag === "Parked") return { _tag: "Refused", reason: "parked" }
  const pauses = pausesOf(health, key, model, now)
  if (health === undefined || pauses.length === 0) return { _tag: "Admitted", health }
  const isTried = pauses.some(({ tried_at }) => tried_at !== null && now < tried_at + trialTimeout)
  if (isTried) return { _tag: "Refused", reason: "on_trial" }
  const tried = (pause: Pause | null) => pause && { ...pause, tried_at: now }
  const models = withModel(health.models, model, tried(health.models.get(model) ?? null))
  return { _tag: "Admitted", health: { ...health, whole: tried(health.whole), models } }
}
