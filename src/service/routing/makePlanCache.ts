import type { Availability } from "../../domain/routing/Health.ts"
import type { Moment } from "../../domain/routing/Moment.ts"
import type { Pool, PooledCredential } from "../../domain/routing/Pool.ts"
import type { Endpoint, RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

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
  readonly request: RoutingRequest
  readonly snapshots: ReadonlyArray<PlannedPool>
  readonly change: number
  /** When the first cooldown or trial in it ends, in milliseconds of the monotonic clock. */
  readonly until: number
}

const compared = ["model", "host", "requires_zdr", "strategy"] as const
const endpointMembers: Readonly<Record<keyof Endpoint, true>> = { kind: true, region: true, zdr: true, shared: true }
const comparedOfEndpoint = Object.keys(endpointMembers) as ReadonlyArray<keyof Endpoint>

/** Whether no credential tells two requests apart. */
const isSame = (one: RoutingRequest, other: RoutingRequest, snapshots: ReadonlyArray<PlannedPool>): boolean =>
  compared.every((name) => one[name] === other[name]) &&
  (one.api_key_hash === other.api_key_hash || !snapshots.some(({ restricts }) => restricts.apiKeys)) &&
  (one.user_id === other.user_id || !snapshots.some(({ restricts }) => restricts.users)) &&
  one.targets.length === other.targets.length &&
  one.targets.every(({ endpoint, provider }, index) => {
    const target = other.targets[index]
    return provider === target?.provider && comparedOfEndpoint.every((name) => endpoint[name] === target.endpoint[name])
  })

/**
 * Keeps what is made of plans. Invariant: one is found again only for a request that no credential tells from its own, while its
 * snapshots are current, `changes` (of what this process knows of keys) has not risen, and no cooldown or trial in it has ended.
 */
export const makePlanCache = <Kept>(changes: () => number = () => 0) => {
  const cached = new WeakMap<PlannedPool, ReadonlyArray<Entry<Kept>>>()
  const entriesOf = ([first]: ReadonlyArray<PlannedPool>) => (first && cached.get(first)) ?? []
  return {
    find: (request: RoutingRequest, snapshots: ReadonlyArray<PlannedPool>, now: Moment): Kept | undefined =>
      entriesOf(snapshots).find(
        (entry) =>
          entry.change === changes() &&
          now.monotonic < entry.until &&
          entry.snapshots.every((snapshot, index) => snapshot === snapshots[index]) &&
          isSame(entry.request, request, snapshots)
      )?.kept,
    /** `noting` tells it of all that a plan is made from, and `keep` keeps what was made. */
    begin: (request: RoutingRequest, snapshots: ReadonlyArray<PlannedPool>, now: Moment) => {
      const change = changes()
      let until = Number.POSITIVE_INFINITY
      return {
        noting: (availabilityOf: AvailabilityOf) => (pooled: PooledCredential) => {
          const availability = availabilityOf(pooled)
          if (availability._tag !== "Free" && availability.until !== null) {
            until = Math.min(until, now.monotonic + availability.until - now.wall)
          }
          return availability
        },
        keep: (kept: Kept): Kept => {
          const [first] = snapshots
          const others = entriesOf(snapshots).filter((entry) => !isSame(entry.request, request, snapshots))
          const entry = { kept, request, snapshots, change, until }
          if (first !== undefined) cached.set(first, [...others.slice(1 - keptPlans), entry])
          return kept
        }
      }
    }
  }
}
