import type { AccountId, CredentialId } from "../../src/domain/Identifiers.ts"
import type { Availability, CooldownCause } from "../../src/domain/routing/Health.ts"
import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import type { PoolRow } from "../../src/port/CredentialPools.ts"
import type { AttemptedKey } from "../../src/service/routing/NextAttempt.ts"
import type { Memory } from "../support/memory/Memory.ts"
import { broken } from "./Broken.ts"
import type { Instance, Told } from "./Instance.ts"
import { epoch as wallEpoch, originOf } from "./Simulation.ts"

const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** A cooldown, by the time of the simulation. */
export interface Cooldown {
  readonly key_version: number
  readonly epoch: number
  readonly until: number
  readonly strikes: number
  readonly cause: CooldownCause | null
}

const never = (key_version: number): Cooldown => ({ key_version, epoch: 0, until: -Infinity, strikes: 0, cause: null })

const isAbove = (one: Cooldown, other: Cooldown) => {
  const parts = ({ cause, epoch, key_version, strikes, until }: Cooldown) => [
    key_version,
    epoch,
    until,
    strikes,
    cause ?? ""
  ]
  const [mine, its] = [parts(one), parts(other)]
  const at = mine.findIndex((part, index) => part !== its[index])
  return at >= 0 && (mine[at] ?? 0) > (its[at] ?? 0)
}

const joined = (one: Cooldown, other: Cooldown) => (isAbove(other, one) ? other : one)
const faded = (cooldown: Cooldown, now: number): Cooldown =>
  cooldown.strikes > 0 && now >= cooldown.until + hour ? { ...cooldown, strikes: 0, cause: null } : cooldown

const lengths = {
  RateLimited: [5 * second, 5 * minute, "rate_limited"],
  Forbidden: [5 * second, 5 * minute, "forbidden"],
  Rejected: [minute, hour, "rejected"],
  QuotaExhausted: [minute, hour, "quota_exhausted"]
} as const

/** What an outcome adds to a cooldown that the lease was made under; nothing if it says nothing of that scope. */
const after = (at: Cooldown, isWhole: boolean, outcome: Outcome, now: number): Cooldown | undefined => {
  if (outcome._tag === "Succeeded") {
    return at.strikes === 0 ? undefined : { ...never(at.key_version), epoch: at.epoch + 1 }
  }
  if (!(outcome._tag in lengths)) return undefined
  const [first, longest, cause] = lengths[outcome._tag as keyof typeof lengths]
  if (isWhole !== (cause === "rejected" || cause === "quota_exhausted")) return undefined
  const asked = outcome._tag === "RateLimited" ? outcome.retry_after : null
  const length =
    asked !== null && !Number.isNaN(asked) ? Math.min(asked, hour) : Math.min(first * 2 ** at.strikes, longest)
  return { ...at, strikes: at.strikes + 1, until: now + length, cause }
}

/** A cooldown that an instance has learned by its own reports. */
export interface Learned {
  readonly cooldown: Cooldown
  readonly at: number
}

/** A report that said something of a key. */
export interface Contribution extends Learned {
  readonly instance: Instance
  readonly life: number
  readonly credential_id: CredentialId
  readonly account_id: AccountId
  readonly scope: string
}

const keyOf = (instance: Instance, credential_id: CredentialId, scope: string) =>
  JSON.stringify([instance.skew, instance.life, credential_id, scope])

/** What is known of keys by plain lists of all reports. It shares no code with the service. */
export class HealthReference {
  readonly contributions: Array<Contribution> = []
  readonly #learned = new Map<Instance, Map<string, Array<Learned>>>()

  #of(instance: Instance, credential_id: CredentialId, scope: string): Array<Learned> {
    const all = this.#learned.get(instance) ?? new Map<string, Array<Learned>>()
    this.#learned.set(instance, all)
    const name = keyOf(instance, credential_id, scope)
    const own = all.get(name) ?? []
    all.set(name, own)
    return own
  }

  /** Whether an instance remembers a model of a key: 100 at a time, and it forgets those that count no more. */
  #isRemembered(instance: Instance, credential_id: CredentialId, model: string): boolean {
    const all = this.#learned.get(instance) ?? new Map<string, Array<Learned>>()
    const prefix = keyOf(instance, credential_id, "").slice(0, -3)
    const whole = keyOf(instance, credential_id, "")
    const models = () =>
      Array.from(all).filter(([name, { length }]) => length > 0 && name !== whole && name.startsWith(prefix))
    if (models().length < 100 || (all.get(keyOf(instance, credential_id, model)) ?? []).length > 0) return true
    for (const [name, own] of models()) {
      const last = own.at(-1)
      if (last !== undefined && faded(last.cooldown, instance.now).strikes === 0) all.delete(name)
    }
    return models().length < 100
  }

  /** The cooldown of a lease, by the time of the simulation. */
  of(instance: Instance, { health }: Pick<AttemptedKey, "health">, scope: "whole" | "model"): Cooldown {
    const { cause, epoch, key_version, strikes, until } = health[scope]
    return { cause, epoch, key_version, strikes, until: until - originOf(instance.skew) }
  }

  /** Notes a report of an attempt, which the upstream answered at a time of the simulation. */
  report(instance: Instance, lease: AttemptedKey, outcome: Outcome, answered_at: number): void {
    const { now } = instance
    const { account_id, credential_id, model } = lease.terms
    const isRemembered = this.#isRemembered(instance, credential_id, model)
    for (const [name, scope] of [
      ["whole", ""],
      ["model", model]
    ] as const) {
      const at = this.of(instance, lease, name)
      const cooldown = after(at, scope === "", outcome, answered_at)
      if (cooldown === undefined || (scope !== "" && !isRemembered && cooldown.strikes > 0)) continue
      const own = this.#of(instance, credential_id, scope)
      const before = joined(own.at(-1)?.cooldown ?? at, at)
      if (!isAbove(cooldown, before)) continue
      if (scope === "" || isRemembered) own.push({ cooldown, at: now })
      const { life } = instance
      this.contributions.push({ instance, life, account_id, credential_id, scope, cooldown, at: now })
    }
  }

  /** What an instance may know of a key since a time, by what it was told of its pool: the newest last. */
  knownSince(instance: Instance, since: number, told: Told, row: PoolRow, scope: string): ReadonlyArray<Cooldown> {
    const { key_version } = row
    const { now } = instance
    const stored = told.parkings
      .get(row.credential.id)
      ?.find(({ cause, model }) => model === scope && cause !== "leaked")
    const seen: Cooldown =
      stored === undefined
        ? never(key_version)
        : stored.remaining === null
          ? { ...never(key_version), epoch: stored.epoch }
          : {
              ...{ key_version, epoch: stored.epoch, strikes: stored.strikes },
              ...{ until: told.at + Math.min(stored.remaining, hour), cause: stored.cause as CooldownCause }
            }
    const own = this.#of(instance, row.credential.id, scope)
    const first = own.findLastIndex(({ at }) => at < since)
    const known = [...(first < 0 ? [undefined] : []), ...own.slice(Math.max(0, first))]
    return known.map((one) => {
      const counts = one?.cooldown.key_version === key_version && now < one.at + 2 * hour
      return faded(counts ? joined(one.cooldown, seen) : seen, now)
    })
  }

  /** What was reported is stored, the greatest of it, and nothing that nobody reported; but of keys whose rows are locked. */
  checkStored({ credentials, marks, parkings }: Memory["Service"], isLocked: (id: CredentialId) => boolean): void {
    for (const { at, cooldown, credential_id, instance, life, scope } of this.contributions) {
      const row = credentials.get(credential_id)
      if (row?.key_version !== cooldown.key_version || marks.has(credential_id) || isLocked(credential_id)) continue
      if (instance.life !== life && instance.endedWell.get(life)?.has(credential_id) !== false) continue
      if (instance.now > Math.max(cooldown.until, at) + 3 * hour) continue
      const stored = parkings.get(`${credential_id} ${scope}`)
      const is = stored && { ...stored, until: stored.until - 1e6 }
      const isKnown =
        is !== undefined &&
        (is.epoch > cooldown.epoch ||
          (is.epoch === cooldown.epoch && is.until >= cooldown.until) ||
          isAbove(is, cooldown))
      if (!isKnown) broken(`a report of ${credential_id} was lost: ${JSON.stringify([cooldown, is])}`)
    }
    for (const { cause, credential_id, epoch, model, strikes, until: ends } of parkings.values()) {
      const until = ends - 1e6
      const isReported = this.contributions.some(
        ({ cooldown, credential_id: id, scope }) =>
          id === credential_id &&
          scope === model &&
          cooldown.epoch === epoch &&
          cooldown.strikes === strikes &&
          cooldown.cause === cause &&
          (cooldown.until === ends || (until >= cooldown.until && until <= cooldown.until + 15 * second))
      )
      if (!isReported)
        broken(`a cooldown is stored that nobody reported: ${JSON.stringify([credential_id, model, cause])}`)
    }
  }

  /** Whether an instance that lives still remembers a report of a key that it made before, and none made since. */
  remembers(
    instance: Instance,
    credential_id: CredentialId,
    scope: string,
    key_version: number,
    before: number
  ): boolean {
    const last = this.#of(instance, credential_id, scope).at(-1)
    return last?.cooldown.key_version === key_version && last.at <= before && instance.now < last.at + 2 * hour
  }
}

/** Whether a key may be tried, by the cooldowns of its two scopes. */
export const availabilityBy = (
  instance: Instance,
  leaked: boolean,
  cooldowns: ReadonlyArray<Cooldown>
): Availability => {
  if (leaked) return { _tag: "Parked", cause: "leaked", until: null }
  const refused = cooldowns.filter(({ strikes }) => strikes > 0).sort((one, other) => one.until - other.until)
  const last = refused.at(-1)
  if (last === undefined || last.cause === null) return { _tag: "Free" }
  const wall = wallEpoch + instance.skew + last.until
  return last.until > instance.now
    ? { _tag: "Parked", cause: last.cause, until: wall }
    : { _tag: "OnTrial", until: wall + hour }
}
