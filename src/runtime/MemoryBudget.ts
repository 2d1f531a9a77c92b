import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { makeFairQueue, type Place, untilStarted } from "./FairQueue.ts"
import { makeMeter } from "./Meter.ts"

/** Bounds the memory that requests, routes and pools of credentials take in this process. Accounts share it. */
export class MemoryBudget extends Context.Service<MemoryBudget, ReturnType<typeof makeMemoryBudget>>()(
  "byok/MemoryBudget"
) {}

/** A budget of `total` bytes, with its metrics. */
export const layer = (total: number) =>
  Layer.effect(
    MemoryBudget,
    Effect.map(makeMeter, ({ gauge }) => {
      const budget = makeMemoryBudget(total)
      for (const use of uses) gauge("byok.memory.held", { use }, () => budget.held[use])
      gauge("byok.memory.budget", {}, () => total)
      return budget
    })
  )

/** Purposes of reservations. `spare` memory holds cache entries, which may be evicted. */
const uses = ["body", "page", "pool", "route", "gateway", "spare"] as const
type Use = Exclude<(typeof uses)[number], "spare">

/** A tenant's request fits if all uses together then take at most three quarters: the rest is for routing only. */
const tenantUses: ReadonlySet<Use> = new Set(["body", "page"])
const tenantsShare = 0.75

const mebibyte = 1024 * 1024

/** Memory reserved for an account. */
export interface Reservation {
  /**
   * Reserves more; or returns false and calls `admitted` once it is reserved, perhaps before it returns. Only one call
   * may wait at a time, and none once the reservation is evictable.
   */
  readonly grow: (bytes: number, admitted: () => void) => boolean
  /** Releases all but `bytes`, and stops waiting for more. */
  readonly shrink: (bytes: number) => void
  /**
   * Turns the reservation into a cache entry that counts for no account. When others need the memory, the budget calls
   * `evict` of the least recently used entry, which must release it at once.
   */
  readonly makeEvictable: (evict: () => void) => void
  /** Marks an evictable reservation as recently used. */
  readonly touch: () => void
  /** Moves `bytes` to an evictable reservation and releases the rest. */
  transfer(target: Reservation, bytes: number): void
  /** Releases everything. Idempotent. */
  readonly release: () => void
}

/**
 * Makes a budget of `total` bytes, which accounts share by a fair queue. Invariant: reservations never exceed it. For a
 * waiting account, the budget evicts cache entries first, then the oldest revocable reservations of the largest
 * account, while that account keeps no less than the waiting one gets.
 *
 * For example, memory for a pool is admitted before the pool is read, shrinks to its size, is evictable while it is
 * cached, touched when it is used, and released when it is replaced or reading it fails.
 */
export const makeMemoryBudget = (total: number) => {
  const tenantsTotal = Math.floor(total * tenantsShare)
  /** Reserved bytes of each use. */
  const held = { body: 0, page: 0, pool: 0, route: 0, gateway: 0, spare: 0 }
  /** Bytes of each account, and its revocable reservations, oldest first. */
  const accounts = new Map<string, { bytes: number; readonly revocable: LinkedList }>()
  /** Cache entries, least recently used first. */
  const evictable: LinkedList = {}
  /** Bytes of revoked reservations that are not released yet. */
  let revokedBytes = 0

  const bytesOf = (account: string) => accounts.get(account)?.bytes ?? 0

  /** A doubly linked list of reservations: every request moves one, for which a `Map` is slower. */
  interface LinkedList {
    first?: ReservedBytes | undefined
    last?: ReservedBytes | undefined
  }

  class ReservedBytes implements Reservation {
    bytes = 0
    readonly account: string
    readonly limit: number
    use: (typeof uses)[number]
    evict: (() => void) | undefined
    waitingPlace: Place | undefined
    isRevoked = false
    /** The list that it is in, and its neighbours there. */
    list: LinkedList | undefined
    previous: ReservedBytes | undefined
    next: ReservedBytes | undefined

    constructor(account: string, use: Use, evict: (() => void) | undefined) {
      this.account = account
      this.limit = tenantUses.has(use) ? tenantsTotal : total
      this.use = use
      this.evict = evict
    }

    /** Leaves the current list, and joins the end of `list` if there is one. */
    moveTo(list: LinkedList | undefined): void {
      const { list: oldList, next, previous } = this
      if (previous !== undefined) previous.next = next
      else if (oldList !== undefined) oldList.first = next
      if (next !== undefined) next.previous = previous
      else if (oldList !== undefined) oldList.last = previous
      this.list = list
      this.next = undefined
      this.previous = list?.last
      if (list === undefined) return
      if (list.last === undefined) list.first = this
      else list.last.next = this
      list.last = this
    }

    /**
     * Adds `bytes`, which may be negative, to this reservation, its use and its account. Keeps it among the account's
     * revocable ones while it has bytes.
     */
    count(bytes: number): void {
      this.bytes += bytes
      held[this.use] += bytes
      if (this.isRevoked) revokedBytes += bytes
      if (this.use === "spare") return
      let owner = accounts.get(this.account)
      if (owner === undefined) {
        owner = { bytes: 0, revocable: {} }
        accounts.set(this.account, owner)
      }
      owner.bytes += bytes
      const list = this.bytes > 0 && this.evict !== undefined ? owner.revocable : undefined
      if (list !== this.list) this.moveTo(list)
      if (owner.bytes === 0) accounts.delete(this.account)
    }

    tryTake(bytes: number): boolean {
      const isTaken = queue.tryTake(bytes, this.limit)
      if (isTaken) this.count(bytes)
      return isTaken
    }

    /** Waits for `bytes` more. Always returns true: the number of waiting places is not limited. */
    enqueue(bytes: number, admitted: () => void): boolean {
      const start = () => {
        this.waitingPlace = undefined
        this.count(bytes)
        admitted()
      }
      this.waitingPlace = { tenant: this.account, weight: bytes, limit: this.limit, start, isAdmitted: false }
      return queue.enqueue(this.waitingPlace)
    }

    grow(bytes: number, admitted: () => void): boolean {
      if (this.tryTake(bytes)) return true
      this.enqueue(bytes, admitted)
      return false
    }

    shrink(bytes: number): void {
      const { waitingPlace } = this
      const excess = Math.max(0, this.bytes - bytes)
      this.waitingPlace = undefined
      if (excess > 0) this.count(-excess)
      if (waitingPlace !== undefined) queue.leave(waitingPlace, excess)
      else if (excess > 0) queue.release(excess)
    }

    makeEvictable(evict: () => void): void {
      const { bytes } = this
      this.count(-bytes)
      this.isRevoked = false
      this.use = "spare"
      this.evict = evict
      this.count(bytes)
      this.moveTo(evictable)
      evictUntil(leavesRoutersShare)
      // Serves a waiting place, which may need the entry evicted.
      queue.release(0)
    }

    touch(): void {
      if (this.list === evictable) this.moveTo(evictable)
    }

    transfer(target: ReservedBytes, bytes: number): void {
      const moved = Math.min(bytes, this.bytes)
      this.count(-moved)
      target.count(moved)
      this.release()
      evictUntil(leavesRoutersShare)
    }

    release(): void {
      this.moveTo(undefined)
      // Frees the closure, even if something still references this reservation.
      this.evict = undefined
      this.shrink(0)
    }

    revoke(): void {
      if (this.isRevoked) return
      this.isRevoked = true
      revokedBytes += this.bytes
      this.evict?.()
    }
  }

  const evictUntil = (isEnough: () => boolean) => {
    for (let oldest = evictable.first; oldest !== undefined && !isEnough(); oldest = evictable.first) {
      oldest.moveTo(undefined)
      oldest.revoke()
    }
  }

  /** Whether the quarter for routing is free, or at most one cache entry is left, which may stay. */
  const leavesRoutersShare = () => queue.used() <= tenantsTotal || evictable.first === evictable.last

  /**
   * Chooses reservations to revoke so that a place fits, each from the account that remains the largest without those
   * chosen before. Chooses none if that account would keep less than the account of the place gets.
   */
  const chooseRevocable = ({ limit, tenant, weight }: Place): ReadonlyArray<ReservedBytes> => {
    const wanted = bytesOf(tenant) + weight
    const chosen: Array<ReservedBytes> = []
    const candidates = Array.from(accounts.values(), ({ bytes, revocable }) => ({ bytes, oldest: revocable.first }))
    for (let free = limit - queue.used() + revokedBytes; free < weight;) {
      const largest = candidates.reduce((one, other) => (other.bytes > one.bytes ? other : one))
      const { oldest } = largest
      if (oldest === undefined || largest.bytes - oldest.bytes < wanted) return []
      largest.oldest = oldest.next
      if (oldest.isRevoked) continue
      largest.bytes -= oldest.bytes
      free += oldest.bytes
      chosen.push(oldest)
    }
    return chosen
  }

  const queue = makeFairQueue({
    total,
    waiting: Number.POSITIVE_INFINITY,
    admittedOf: bytesOf,
    makeRoom: (place) => {
      evictUntil(() => queue.fits(place))
      if (!queue.fits(place) && accounts.size > 0) for (const chosen of chooseRevocable(place)) chosen.revoke()
    }
  })

  /**
   * Makes an empty reservation. With `evict` it is revocable: the budget calls `evict` to free the memory for a smaller
   * account.
   */
  const reserve = (account: string, use: Use, evict?: () => void): Reservation => new ReservedBytes(account, use, evict)

  return {
    held,
    /** Maximum bytes of all uses together with which a tenant's request fits. */
    tenantsTotal,
    reserve,
    /**
     * Waits until an account may reserve `bytes` more; fails if they never fit, or at the request's deadline. If they
     * fit now, they are reserved by the call itself, before the effect runs.
     */
    admit: (
      account: string,
      use: Use,
      bytes: number,
      evict?: () => void
    ): Effect.Effect<Reservation, ServiceUnavailable> => {
      const reservation = new ReservedBytes(account, use, evict)
      if (reservation.tryTake(bytes)) return Effect.succeed(reservation)
      if (bytes > reservation.limit) {
        const [needed, allowed] = [bytes, reservation.limit].map((bytes) => Math.ceil(bytes / mebibyte))
        const warning = `A ${use} of ${needed} MiB was refused: MEMORY_BUDGET leaves it ${allowed} MiB`
        return Effect.andThen(Effect.logWarning(warning), new ServiceUnavailable())
      }
      const admitted = untilStarted((start) => reservation.enqueue(bytes, start))
      const release = Effect.sync(() => reservation.release())
      return Effect.as(
        Effect.onError(Effect.interruptible(admitted), () => release),
        reservation
      )
    }
  }
}
