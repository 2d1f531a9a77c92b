import type { CredentialReference } from "../../domain/Identifiers.ts"
import {
  type Cooldown,
  type Cooldowns,
  compare,
  contributionOf,
  type Health,
  join,
  rememberedFor,
  expireStrikes,
  initialCooldown,
  wholeKey
} from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"

/** A key version, the model for which it is leased, and the request that leases it. */
export interface LeasedKey extends CredentialReference {
  readonly key_version: number
  readonly model: string
  readonly request_id: string
}

/** A cooldown that grew in this process and is not stored yet. */
export interface PendingCooldown extends CredentialReference {
  readonly model: string
  readonly cooldown: Cooldown
}

/**
 * Makes this process's memory of refused keys, which it joins with stored cooldowns. A key that an upstream refuses is
 * parked until its cooldown ends; then one request tries it. Invariants: a remembered cooldown only grows; each key
 * version, epoch and number of strikes is on trial by at most one request at a time; refusals are remembered and stored
 * for at most `maxModels` models of a key at a time, so that made-up names of models cost little. Times are in milliseconds of the monotonic clock.
 */
export const makeHealthState = (maxModels = 100) => {
  /** Cooldowns by credential and model. The credential that was reported last comes last. */
  const reports = new Map<string, Map<string, ReportedCooldown>>()
  /** Trials by name, the one claimed last at the end. */
  const trials = new Map<string, { readonly request_id: string; readonly claimed_at: number }>()

  /** Drops the trials that nobody settled in time. */
  const sweepTrials = (now: number) => {
    for (const [name, { claimed_at }] of trials) {
      if (now < claimed_at + trialTimeout) return
      trials.delete(name)
    }
  }

  /** The names of the trials of a lease. Omits `until`, which differs between reads: it is converted between clocks. */
  const trialNamesOf = (key: LeasedKey, health: Health): ReadonlyArray<string> =>
    scopes.flatMap((scope) => {
      const { epoch, key_version, strikes } = health[scope]
      return strikes === 0 ? [] : [`${nameOf(key)} ${key_version} ${epoch} ${strikes} ${modelOf(key, scope)}`]
    })

  const isExpired = ({ reported_at }: ReportedCooldown, now: number) => now >= reported_at + rememberedFor

  const cooldownOf = (
    reported: ReportedCooldown | undefined,
    key_version: number,
    stored: Cooldown | undefined,
    now: number
  ): Cooldown => {
    const storedOrInitial = stored ?? initialCooldown(key_version)
    const isCurrent = reported?.cooldown.key_version === key_version && !isExpired(reported, now)
    return expireStrikes(isCurrent ? join(reported.cooldown, storedOrInitial) : storedOrInitial, now)
  }

  /** Forgets credentials whose reports have all expired, oldest first. Stops at the first with an unexpired one. */
  const dropExpired = (now: number) => {
    for (const [credential, models] of reports) {
      if (!Array.from(models.values()).every((reported) => isExpired(reported, now))) return
      reports.delete(credential)
    }
  }

  /**
   * Whether the model may be remembered: it is already, or its key has fewer than `maxModels`. Drops models without
   * strikes if there are too many.
   */
  const mayRemember = (key: LeasedKey, now: number): boolean => {
    const models = reports.get(nameOf(key))
    if (models === undefined || models.has(key.model)) return true
    const isFull = () => models.size - (models.has(wholeKey) ? 1 : 0) >= maxModels
    if (!isFull()) return true
    for (const [other, { cooldown }] of models) {
      if (other !== wholeKey && expireStrikes(cooldown, now).strikes === 0) models.delete(other)
    }
    return !isFull()
  }

  /** Remembers a cooldown that exceeds both the one at the lease and the remembered one. Returns whether it does. */
  const raise = (key: LeasedKey, model: string, atLease: Cooldown, cooldown: Cooldown, now: number): boolean => {
    const credential = nameOf(key)
    const models = reports.get(credential) ?? new Map<string, ReportedCooldown>()
    const previous = join(models.get(model)?.cooldown ?? atLease, atLease)
    if (compare(cooldown, previous) <= 0) return false
    // Of a model beyond `maxModels`, a success is stored in the database only, and a refusal nowhere.
    if (model !== wholeKey && !mayRemember(key, now)) return cooldown.strikes === 0
    models.set(model, { cooldown, reported_at: now })
    reports.delete(credential)
    reports.set(credential, models)
    dropExpired(now)
    return true
  }

  return {
    /** The health of a key: for each scope, its stored cooldown joined with the remembered one. */
    healthOf: (key: Omit<LeasedKey, "request_id">, stored: Cooldowns, now: number): Health => {
      const { key_version, model } = key
      const models = reports.get(nameOf(key))
      return {
        whole: cooldownOf(models?.get(wholeKey), key_version, stored.get(wholeKey), now),
        model: cooldownOf(models?.get(model), key_version, stored.get(model), now)
      }
    },
    /**
     * Claims the trial of a key, if it is on trial, for `trialTimeout`. A request that claims it again gets it again.
     * Returns false if another request has it.
     */
    claimTrial: (key: LeasedKey, health: Health, now: number): boolean => {
      sweepTrials(now)
      const { request_id } = key
      const names = trialNamesOf(key, health)
      if (names.some((name) => (trials.get(name)?.request_id ?? request_id) !== request_id)) return false
      for (const name of names) {
        trials.delete(name)
        trials.set(name, { request_id, claimed_at: now })
      }
      return true
    },
    /** Ends the trial of a key, if its request has it. */
    releaseTrial: (key: LeasedKey, health: Health) => {
      for (const name of trialNamesOf(key, health)) {
        if (trials.get(name)?.request_id === key.request_id) trials.delete(name)
      }
    },
    /**
     * Applies the outcome of a lease that began with health `atLease`, as of when the upstream answered: a repeated
     * report changes nothing. Returns the cooldowns that grew.
     */
    report: (
      key: LeasedKey,
      atLease: Health,
      outcome: Outcome,
      answered_at: number,
      now: number
    ): ReadonlyArray<PendingCooldown> => {
      const { account_id, credential_id } = key
      const contribution = contributionOf(atLease, outcome, answered_at)
      return scopes
        .filter((scope) => raise(key, modelOf(key, scope), atLease[scope], contribution[scope], now))
        .map((scope) => ({ account_id, credential_id, model: modelOf(key, scope), cooldown: contribution[scope] }))
    }
  }
}

/** How long a request that tries a key excludes others, in milliseconds. */
const trialTimeout = 30_000

const scopes = ["whole", "model"] as const
type Scope = (typeof scopes)[number]

const modelOf = ({ model }: Pick<LeasedKey, "model">, scope: Scope) => (scope === "whole" ? wholeKey : model)

const nameOf = ({ account_id, credential_id }: CredentialReference) => `${account_id} ${credential_id}`

interface ReportedCooldown {
  readonly cooldown: Cooldown
  readonly reported_at: number
}
