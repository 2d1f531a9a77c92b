import type { Moment } from "../../domain/routing/Moment.ts"
import type { Plan } from "../../domain/routing/Plan.ts"
import type { Pool } from "../../domain/routing/Pool.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

/** From how many credentials on a plan is kept: with fewer it is made as fast as it is found. */
const worthKeeping = 16

/** How many plans are kept of a pool, for as many models. `Pools` counts their memory. */
export const keptPlans = 4

/** Whether a credential of a pool tells callers' keys or users apart. */
export const restrictionsOf = (pool: Pool) => ({
  apiKeys: pool.some(({ credential }) => credential.allowed_api_key_hashes !== null),
  users: pool.some(({ credential }) => credential.allowed_user_ids !== null)
})

/** What a plan is made from. */
interface PlannedPool {
  readonly pool: Pool
  readonly restricts: ReturnType<typeof restrictionsOf>
}

interface KeptPlan {
  readonly plan: Plan
  readonly snapshots: ReadonlyArray<PlannedPool>
  readonly change: number
  /** When the first cooldown in it ends, in milliseconds of the monotonic clock. */
  readonly until: number
}

const nameOf = (
  { api_key_hash, host, model, requires_zdr, strategy, targets, user_id }: RoutingRequest,
  snapshots: ReadonlyArray<PlannedPool>
) => {
  const key = snapshots.some(({ restricts }) => restricts.apiKeys) && api_key_hash
  const user = snapshots.some(({ restricts }) => restricts.users) && user_id
  return JSON.stringify([model, key, user, host, requires_zdr, strategy, targets])
}

/** When the first cooldown ends; a plan with a key on trial is not kept: that ends when its cooldown is forgotten. */
const endOf = ({ providers, steps }: Plan, { monotonic, wall }: Moment): number => {
  if (steps.some((step) => step._tag === "Own" && step.on_trial)) return Number.NEGATIVE_INFINITY
  let end = Number.POSITIVE_INFINITY
  for (const { credentials } of providers) {
    for (const { exclusions } of credentials) {
      const last = exclusions.at(-1)
      if (last?.reason === "parked" && last.until !== null) end = Math.min(end, monotonic + last.until - wall)
    }
  }
  return end
}

/**
 * Keeps plans of large pools. Invariant: one is answered again only for a request that no credential tells from its own, while
 * its snapshots are current, `changes` (of what this process knows of keys) has not risen, and no cooldown in it has ended.
 */
export const makePlanCache = (changes: () => number) => {
  const cached = new WeakMap<PlannedPool, Map<string, KeptPlan>>()
  return (request: RoutingRequest, snapshots: ReadonlyArray<PlannedPool>, now: Moment, make: () => Plan): Plan => {
    const [first] = snapshots
    if (first === undefined || snapshots.every(({ pool }) => pool.length < worthKeeping)) return make()
    const plans = cached.get(first) ?? new Map<string, KeptPlan>()
    const name = nameOf(request, snapshots)
    const kept = plans.get(name)
    const isCurrent =
      kept?.change === changes() &&
      now.monotonic < kept.until &&
      kept.snapshots.every((snapshot, index) => snapshot === snapshots[index])
    if (isCurrent) return kept.plan
    const plan = make()
    plans.delete(name)
    plans.set(name, { plan, snapshots, change: changes(), until: endOf(plan, now) })
    for (const [oldest] of plans) if (plans.size > keptPlans) plans.delete(oldest)
    cached.set(first, plans)
    return plan
  }
}
