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

export interface LeasedKey extends CredentialReference {
  readonly key_version: number
  readonly model: string
}

/** A cooldown that grew in this process and is not stored yet. */
export interface PendingCooldown extends CredentialReference {
  readonly model: string
  readonly cooldown: Cooldown
}

/** After this time a lease on trial no longer excludes others, in milliseconds. */
const trialTimeout = 30_000

/** Maximum models tracked per key, as many as an allow list names: requests may invent models without end. */
const defaultMaxModels = 100

const scopes = ["whole", "model"] as const
const none: ReadonlyArray<never> = []
type Scope = (typeof scopes)[number]

const modelOf = ({ model }: LeasedKey, scope: Scope) => (scope === "whole" ? wholeKey : model)

const credentialOf = ({ account_id, credential_id }: CredentialReference) => `${account_id} ${credential_id}`

interface Reported {
  readonly cooldown: Cooldown
  readonly reported_at: number
}

/**
 * The health of keys in this process: joins its own reports with the stored cooldowns it reads. Invariants: a remembered
 * cooldown only grows; each key version, epoch and number of strikes has at most one lease on trial; every refusal parks, and
 * the refusal of an untracked model parks the whole key.
 */
export const makeHealthState = (maxModels = defaultMaxModels) => {
  /** By credential and model; the latest reported credential comes last. */
  const reports = new Map<string, Map<string, Reported>>()
  /** The lease that tries a key after its cooldown, in this process. */
  const trials = new Map<string, { readonly lease: object; readonly began: number }>()
  let changes = 0

  /** Names the trials of a lease. Omits `until`, which differs between reads because it is converted between clocks. */
  const trialsOf = (key: LeasedKey, health: Health): ReadonlyArray<string> =>
    health.whole.strikes + health.model.strikes === 0
      ? none
      : scopes.flatMap((scope) => {
          const { epoch, key_version, strikes } = health[scope]
          return strikes === 0 ? [] : [`${credentialOf(key)} ${key_version} ${epoch} ${strikes} ${modelOf(key, scope)}`]
        })

  const isForgotten = ({ reported_at }: Reported, now: number) => now >= reported_at + rememberedFor

  const cooldownOf = (
    reported: Reported | undefined,
    key_version: number,
    stored: Cooldown | undefined,
    now: number
  ): Cooldown => {
    const seen = stored ?? initialCooldown(key_version)
    const isKnown = reported?.cooldown.key_version === key_version && !isForgotten(reported, now)
    return expireStrikes(isKnown ? join(reported.cooldown, seen) : seen, now)
  }

  const dropForgotten = (now: number) => {
    for (const [credential, models] of reports) {
      if (!Array.from(models.values()).every((reported) => isForgotten(reported, now))) return
      reports.delete(credential)
    }
  }

  /** Whether the model of a key has a cooldown, or room for one after dropping expired ones. */
  const isTracked = (key: LeasedKey, now: number): boolean => {
    const models = reports.get(credentialOf(key))
    if (models === undefined || models.has(key.model)) return true
    const isFull = () => models.size - (models.has(wholeKey) ? 1 : 0) >= maxModels
    if (!isFull()) return true
    for (const [other, { cooldown }] of models) {
      if (other !== wholeKey && expireStrikes(cooldown, now).strikes === 0) models.delete(other)
    }
    return !isFull()
  }

  /** Joins a cooldown to the remembered one, and to `initial` from the lease. Returns whether the cooldown grew. */
  const raise = (key: LeasedKey, model: string, initial: Cooldown, cooldown: Cooldown, now: number): boolean => {
    if (cooldown === initial) return false
    const credential = credentialOf(key)
    const models = reports.get(credential) ?? new Map<string, Reported>()
    const before = join(models.get(model)?.cooldown ?? initial, initial)
    if (compare(cooldown, before) <= 0) return false
    // This process does not remember an untracked model, whose success only the database stores.
    if (model !== wholeKey && !isTracked(key, now)) return true
    changes += 1
    models.set(model, { cooldown, reported_at: now })
    reports.delete(credential)
    reports.set(credential, models)
    dropForgotten(now)
    return true
  }

  return {
    /** Number of changes so far. */
    changes: () => changes,
    healthOf: (key: LeasedKey, stored: Cooldowns, now: number): Health => {
      const { key_version, model } = key
      const models = reports.size === 0 ? undefined : reports.get(credentialOf(key))
      return {
        whole: cooldownOf(models?.get(wholeKey), key_version, stored.get(wholeKey), now),
        model: cooldownOf(models?.get(model), key_version, stored.get(model), now)
      }
    },
    /** Takes the trial of a key, if it is on trial. Returns false if another lease has it. */
    admit: (key: LeasedKey, health: Health, lease: object, now: number): boolean => {
      const names = trialsOf(key, health)
      if (names.some((name) => now < (trials.get(name)?.began ?? -Infinity) + trialTimeout)) return false
      for (const name of names) trials.set(name, { lease, began: now })
      return true
    },
    /** Ends the trial of a lease, if it has one. */
    releaseTrial: (key: LeasedKey, health: Health, lease: object) => {
      for (const name of trialsOf(key, health)) if (trials.get(name)?.lease === lease) trials.delete(name)
    },
    /** Applies the outcome of a lease that began with health `at`. Returns the cooldowns that grew. */
    report: (key: LeasedKey, at: Health, outcome: Outcome, now: number): ReadonlyArray<PendingCooldown> => {
      const { account_id, credential_id } = key
      const after = contributionOf(at, outcome, now, !isTracked(key, now))
      return scopes
        .filter((scope) => raise(key, modelOf(key, scope), at[scope], after[scope], now))
        .map((scope) => ({ account_id, credential_id, model: modelOf(key, scope), cooldown: after[scope] }))
    }
  }
}
