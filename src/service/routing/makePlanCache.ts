import type { Availability } from "../../domain/routing/Health.ts"
import type { Moment } from "../../domain/routing/Moment.ts"
import type { Pool, PooledCredential } from "../../domain/routing/Pool.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

/** From how many credentials on a plan is kept: with fewer it is made as fast as it is found. */
const worthKeeping = 16

/** How many plans are kept of a pool, for as many models, and how many of its explanations. */
const keptPlans = 4
/** How many bytes a kept explanation has at most for each credential: most have half as many. */
export const keptBytes = 600
/** How many bytes all of them take for each credential; a plan has four objects. `Pools` counts their memory. */
export const bytesOfKept = keptPlans * (250 + keptBytes)

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

type AvailabilityOf = (pooled: PooledCredential) => Availability

interface Entry<Kept> {
  readonly kept: Kept
  readonly snapshots: ReadonlyArray<PlannedPool>
  readonly change: number
  /** When the first cooldown or trial in it ends, in milliseconds of the monotonic clock. */
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

/**
 * Keeps what is made of plans of large pools. Invariant: one is answered again only for a request that no credential tells from
 * its own, while its snapshots are current, `changes` (of what this process knows of keys) has not risen, and no cooldown or
 * trial in it has ended.
 */
export const makePlanCache = <Kept>(changes: () => number = () => 0) => {
  const cached = new WeakMap<PlannedPool, Map<string, Entry<Kept>>>()
  const nothing = {
    kept: undefined,
    noting: (availabilityOf: AvailabilityOf) => availabilityOf,
    keep: (kept: Kept) => kept
  }
  /** What is kept for a request; if nothing is, `noting` tells it of all that a plan is made from, and `keep` keeps that. */
  return (request: RoutingRequest, snapshots: ReadonlyArray<PlannedPool>, now: Moment) => {
    const [first] = snapshots
    if (first === undefined || snapshots.every(({ pool }) => pool.length < worthKeeping)) return nothing
    const entries = cached.get(first) ?? new Map<string, Entry<Kept>>()
    const name = nameOf(request, snapshots)
    const found = entries.get(name)
    const isCurrent =
      found?.change === changes() &&
      now.monotonic < found.until &&
      found.snapshots.every((snapshot, index) => snapshot === snapshots[index])
    const change = changes()
    let until = Number.POSITIVE_INFINITY
    return {
      kept: isCurrent ? found.kept : undefined,
      noting: (availabilityOf: AvailabilityOf) => (pooled: PooledCredential) => {
        const availability = availabilityOf(pooled)
        if (availability._tag !== "Free" && availability.until !== null) {
          until = Math.min(until, now.monotonic + availability.until - now.wall)
        }
        return availability
      },
      keep: (kept: Kept): Kept => {
        entries.delete(name)
        entries.set(name, { kept, snapshots, change, until })
        for (const [oldest] of entries) if (entries.size > keptPlans) entries.delete(oldest)
        cached.set(first, entries)
        return kept
      }
    }
  }
}
