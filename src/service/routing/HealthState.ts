import type { OwnedCredential } from "../../domain/Identifiers.ts"
import {
  type Cooldown,
  type Cooldowns,
  compare,
  contributed,
  type Health,
  join,
  rememberedFor,
  remembered,
  unknown,
  wholeKey
} from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"

/** A key that is leased for a model. */
export interface LeasedKey extends OwnedCredential {
  readonly key_version: number
  readonly model: string
}

/** A cooldown that grew and waits to be stored. */
export interface PendingCooldown extends OwnedCredential {
  readonly model: string
  readonly cooldown: Cooldown
}

/** A lease that has not ended by then no longer keeps others from trying the key. */
const trialTimeout = 30_000

/**
 * How many models of a key are told apart, beside the whole key: as many as an allow list names. A key without one is asked
 * for any model that requests make up.
 */
const defaultMaxModels = 100

/** A key cools down for every model, or for one. */
const scopes = ["whole", "model"] as const
const none: ReadonlyArray<never> = []
type Scope = (typeof scopes)[number]

const modelOf = ({ model }: LeasedKey, scope: Scope) => (scope === "whole" ? wholeKey : model)

const credentialOf = ({ account_id, credential_id }: OwnedCredential) => `${account_id} ${credential_id}`

interface Reported {
  readonly cooldown: Cooldown
  readonly at: number
}

/**
 * What this process knows of keys: the join of its own reports with whatever it is shown of the database. Invariants: a
 * cooldown of a key only grows while it is remembered, and no report, read or store can make it smaller; for each key
 * version, epoch and number of strikes at most one lease is on trial; whatever is refused is parked, a model beyond those that
 * are told apart with its whole key.
 */
export const makeHealthState = (maxModels = defaultMaxModels) => {
  /** By credential and model; the credential that was reported last comes last. */
  const known = new Map<string, Map<string, Reported>>()
  /** One lease at a time tries a key whose cooldown is over. Only this process knows. */
  const trials = new Map<string, { readonly lease: object; readonly began: number }>()
  let changes = 0

  /** The trials that a lease is on, by what every read of a cooldown agrees on: its end is converted between clocks. */
  const trialsOf = (key: LeasedKey, health: Health): ReadonlyArray<string> =>
    health.whole.strikes + health.model.strikes === 0
      ? none
      : scopes.flatMap((scope) => {
          const { epoch, key_version, strikes } = health[scope]
          return strikes === 0 ? [] : [`${credentialOf(key)} ${key_version} ${epoch} ${strikes} ${modelOf(key, scope)}`]
        })

  const isForgotten = ({ at }: Reported, now: number) => now >= at + rememberedFor

  const cooldownOf = (
    own: Reported | undefined,
    key_version: number,
    stored: Cooldown | undefined,
    now: number
  ): Cooldown => {
    const seen = stored ?? unknown(key_version)
    const isKnown = own?.cooldown.key_version === key_version && !isForgotten(own, now)
    return remembered(isKnown ? join(own.cooldown, seen) : seen, now)
  }

  /** Keys whose last report is so old that every cooldown after it is over and forgotten. */
  const forgetOld = (now: number) => {
    for (const [credential, models] of known) {
      if (!Array.from(models.values()).every((reported) => isForgotten(reported, now))) return
      known.delete(credential)
    }
  }

  /** Whether the model of a key is told apart from others. Those that are over and forgotten make room. */
  const isApart = (key: LeasedKey, now: number): boolean => {
    const models = known.get(credentialOf(key))
    const isFull = () => models !== undefined && models.size - (models.has(wholeKey) ? 1 : 0) >= maxModels
    if (models === undefined || models.has(key.model) || !isFull()) return true
    for (const [other, { cooldown }] of models) {
      if (other !== wholeKey && remembered(cooldown, now).strikes === 0) models.delete(other)
    }
    return !isFull()
  }

  /** Joins a cooldown to what is known. Returns whether that made it greater. */
  const learn = (key: LeasedKey, model: string, at: Cooldown, cooldown: Cooldown, now: number): boolean => {
    if (cooldown === at) return false
    const credential = credentialOf(key)
    const models = known.get(credential) ?? new Map<string, Reported>()
    const before = join(models.get(model)?.cooldown ?? at, at)
    if (compare(cooldown, before) <= 0) return false
    // A success is stored though, and read with what is stored of the model.
    if (model !== wholeKey && !isApart(key, now)) return true
    changes += 1
    models.set(model, { cooldown, at: now })
    known.delete(credential)
    known.set(credential, models)
    forgetOld(now)
    return true
  }

  return {
    /** How often what is known has changed. */
    changes: () => changes,
    healthOf: (key: LeasedKey, stored: Cooldowns, now: number): Health => {
      const { key_version, model } = key
      const own = known.size === 0 ? undefined : known.get(credentialOf(key))
      return {
        whole: cooldownOf(own?.get(wholeKey), key_version, stored.get(wholeKey), now),
        model: cooldownOf(own?.get(model), key_version, stored.get(model), now)
      }
    },
    /** Takes the trial of a key for a lease, if it is on trial. False if another lease is trying it. */
    admit: (key: LeasedKey, health: Health, lease: object, now: number): boolean => {
      const names = trialsOf(key, health)
      if (names.some((name) => now < (trials.get(name)?.began ?? -Infinity) + trialTimeout)) return false
      for (const name of names) trials.set(name, { lease, began: now })
      return true
    },
    /** Ends the trial of a lease that was made under this health, if it has one: its key is open to the next. */
    giveBack: (key: LeasedKey, health: Health, lease: object) => {
      for (const name of trialsOf(key, health)) if (trials.get(name)?.lease === lease) trials.delete(name)
    },
    /** Learns from the outcome of a lease that was made under `at`. Returns the cooldowns that grew. */
    report: (key: LeasedKey, at: Health, outcome: Outcome, now: number): ReadonlyArray<PendingCooldown> => {
      const { account_id, credential_id } = key
      const after = contributed(at, outcome, now, !isApart(key, now))
      return scopes
        .filter((scope) => learn(key, modelOf(key, scope), at[scope], after[scope], now))
        .map((scope) => ({ account_id, credential_id, model: modelOf(key, scope), cooldown: after[scope] }))
    }
  }
}
