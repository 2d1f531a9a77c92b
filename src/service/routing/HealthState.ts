import type { OwnedCredential } from "../../domain/Identifiers.ts"
import {
  type Cooldown,
  type Cooldowns,
  compare,
  contributed,
  type Health,
  join,
  longestPause,
  forgottenAfter,
  remembered,
  unknown,
  wholeKey
} from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"

/** A key that is leased for a model. */
export interface Tried extends OwnedCredential {
  readonly key_version: number
  readonly model: string
}

/** One lease at a time tries a key whose pause is over. Only this process knows. */
interface Trial {
  readonly of: Cooldown
  readonly lease: object
  readonly began: number
}

/** A change that waits to be stored. */
export interface Waiting extends OwnedCredential {
  readonly model: string
  readonly cooldown: Cooldown
}

/** A lease that has not ended by then no longer keeps others from trying the key. */
const trialTimeout = 30_000

/** As many as an allow list names. A key without one is asked for any model that requests make up. */
const maxModels = 100

/** How many changes wait for a database that does not answer. Further ones hold in this process only. */
const maxWaiting = 10_000

/** A key is paused for every model, or for one. */
const scopes = ["whole", "model"] as const
type Scope = (typeof scopes)[number]

const modelOf = ({ model }: Tried, scope: Scope) => (scope === "whole" ? wholeKey : model)

/**
 * What this process knows of keys: the join of its own reports with whatever it is shown of the database. Invariant: a
 * cooldown of a key only grows, and no report, read or store can make it smaller.
 */
export const makeHealthState = () => {
  /** By account and credential, the one that was reported last at the end. */
  const known = new Map<string, { readonly models: Map<string, Cooldown>; reported_at: number }>()
  const trials = new Map<string, Trial>()
  const waiting = new Map<string, Waiting>()

  const nameOf = ({ account_id, credential_id }: OwnedCredential) => `${account_id} ${credential_id}`

  const trialOf = (tried: Tried, scope: Scope) => `${nameOf(tried)} ${modelOf(tried, scope)}`

  const cooldownOf = (tried: Tried, stored: Cooldowns, model: string, now: number): Cooldown => {
    const bottom = unknown(tried.key_version)
    const own = known.get(nameOf(tried))?.models.get(model)
    const seen = stored.get(model) ?? bottom
    return remembered(own?.key_version === tried.key_version ? join(own, seen) : seen, now)
  }

  const healthOf = (tried: Tried, stored: Cooldowns, now: number): Health => ({
    whole: cooldownOf(tried, stored, wholeKey, now),
    model: cooldownOf(tried, stored, tried.model, now)
  })

  /** Keys whose last report is so old that every pause after it is over and forgotten. */
  const forgetOld = (now: number) => {
    for (const [name, { reported_at }] of known) {
      if (now < reported_at + longestPause + forgottenAfter) return
      known.delete(name)
    }
  }

  /** Joins a cooldown to what is known, and notes it to be stored if that made it greater. */
  const learn = (tried: Tried, model: string, at: Cooldown, cooldown: Cooldown, now: number): boolean => {
    const name = nameOf(tried)
    const models = known.get(name)?.models ?? new Map<string, Cooldown>()
    const before = join(models.get(model) ?? at, at)
    if (compare(cooldown, before) <= 0) return false
    if (!models.has(model) && models.size >= maxModels) {
      for (const [other, { until }] of models) if (now >= until + forgottenAfter) models.delete(other)
      if (models.size >= maxModels) return false
    }
    models.set(model, cooldown)
    known.delete(name)
    known.set(name, { models, reported_at: now })
    forgetOld(now)
    wait({ account_id: tried.account_id, credential_id: tried.credential_id, model, cooldown })
    return true
  }

  const wait = (change: Waiting) => {
    const name = `${nameOf(change)} ${change.model}`
    const other = waiting.get(name)
    if (other === undefined && waiting.size >= maxWaiting) return
    waiting.set(name, other === undefined ? change : { ...change, cooldown: join(other.cooldown, change.cooldown) })
  }

  return {
    healthOf,
    /** Takes the trial of a key on probation for a lease. False if another lease is trying it. */
    admit: (tried: Tried, health: Health, lease: object, now: number): boolean => {
      const onProbation = scopes.filter((scope) => health[scope].strikes > 0)
      const isTried = onProbation.some((scope) => {
        const trial = trials.get(trialOf(tried, scope))
        return trial !== undefined && compare(trial.of, health[scope]) === 0 && now < trial.began + trialTimeout
      })
      if (isTried) return false
      for (const scope of onProbation) trials.set(trialOf(tried, scope), { of: health[scope], lease, began: now })
      return true
    },
    /** Ends the trial of a lease, if it has one: its key is open to the next. */
    giveBack: (tried: Tried, lease: object) => {
      for (const name of scopes.map((scope) => trialOf(tried, scope))) {
        if (trials.get(name)?.lease === lease) trials.delete(name)
      }
    },
    /** Learns from the outcome of a lease that was made under `at`. Returns the cooldowns that grew. */
    report: (tried: Tried, at: Health, outcome: Outcome, now: number): ReadonlyArray<Cooldown> => {
      const after = contributed(at, outcome, now)
      const grew = scopes.filter((scope) => learn(tried, modelOf(tried, scope), at[scope], after[scope], now))
      return grew.map((scope) => after[scope])
    },
    /** Takes changes that wait to be stored. Those that could not be must be given back with `putBack`. */
    take: (count: number): ReadonlyArray<Waiting> => {
      const taken = Array.from(waiting).slice(0, count)
      for (const [name] of taken) waiting.delete(name)
      return taken.map(([, change]) => change)
    },
    putBack: (changes: ReadonlyArray<Waiting>): void => changes.forEach(wait),
    isWaiting: () => waiting.size > 0
  }
}
