import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { makeFairQueue, type Place, untilStarted } from "./FairQueue.ts"
import { makeMeter } from "./Meter.ts"

/** What memory is held for. What is spare is kept only until somebody needs its room. */
const uses = ["body", "page", "pool", "route", "gateway", "spare"] as const
type Use = Exclude<(typeof uses)[number], "spare">

/** Requests of tenants leave a quarter of the budget alone, so that they cannot stop routing. */
const ofTenants: ReadonlySet<Use> = new Set(["body", "page"])
const tenantsPart = 0.75

const mebibyte = 1024 * 1024

export interface Holding {
  /** Takes more, or returns false and calls `admitted`, perhaps at once. Once at a time, and not when spare. */
  readonly grow: (bytes: number, admitted: () => void) => boolean
  /** Gives back what exceeds so many bytes. */
  readonly shrink: (bytes: number) => void
  /**
   * Keeps the bytes as a cache does: for no account, and until somebody needs their room. Then `letGo` is called, which must
   * release them at once. The least recently used ones go first.
   */
  readonly spare: (letGo: () => void) => void
  /** Notes that spare bytes were used. */
  readonly touch: () => void
  /** Leaves so many bytes to one that is spare, and gives the others back. */
  leaveTo(heir: Holding, bytes: number): void
  /** Gives everything back. Only the first call counts. */
  readonly release: () => void
}

/**
 * Makes a budget of so many bytes, which accounts share by a fair queue: what is admitted never exceeds it. Who waits makes
 * spare bytes go; then, if the account that holds most would still have no less, what that account has held for longest.
 *
 * A pool is admitted before it is read, `shrink`s to what it takes, is `spare` while it is cached, is `touch`ed by whoever
 * uses it, and is `release`d when another one replaces it or reading it fails.
 */
export const makeMemoryBudget = (total: number) => {
  const tenantsTotal = Math.floor(total * tenantsPart)
  const held = { body: 0, page: 0, pool: 0, route: 0, gateway: 0, spare: 0 }
  /** What each account holds, and what of it can be let go of, the oldest first. */
  const accounts = new Map<string, { bytes: number; readonly revocable: Order }>()
  /** The least recently used first. */
  const spares: Order = { first: undefined, last: undefined }
  /** The bytes that are about to be released. */
  let leaving = 0

  const bytesOf = (account: string) => accounts.get(account)?.bytes ?? 0

  /** What stands in it links it: every request moves something, which two links take less time for than a table. */
  interface Order {
    first: Held | undefined
    last: Held | undefined
  }

  class Held implements Holding {
    bytes = 0
    readonly account: string
    readonly most: number
    use: (typeof uses)[number]
    letGo: (() => void) | undefined
    waiting: Place | undefined
    isLeaving = false
    /** Where it stands, between which. */
    order: Order | undefined
    before: Held | undefined
    after: Held | undefined

    constructor(account: string, use: Use, letGo: (() => void) | undefined) {
      this.account = account
      this.most = ofTenants.has(use) ? tenantsTotal : total
      this.use = use
      this.letGo = letGo
    }

    /** Goes to the end of an order, or out of the one that it stands in. */
    moveTo(order: Order | undefined): void {
      const { after, before, order: left } = this
      if (before !== undefined) before.after = after
      else if (left !== undefined) left.first = after
      if (after !== undefined) after.before = before
      else if (left !== undefined) left.last = before
      this.order = order
      this.after = undefined
      this.before = order?.last
      if (order === undefined) return
      if (order.last === undefined) order.first = this
      else order.last.after = this
      order.last = this
    }

    count(bytes: number): void {
      this.bytes += bytes
      held[this.use] += bytes
      if (this.isLeaving) leaving += bytes
      if (this.use === "spare") return
      let own = accounts.get(this.account)
      if (own === undefined) {
        if (bytes === 0) return
        own = { bytes: 0, revocable: { first: undefined, last: undefined } }
        accounts.set(this.account, own)
      }
      own.bytes += bytes
      const order = this.bytes > 0 && this.letGo !== undefined ? own.revocable : undefined
      if (order !== this.order) this.moveTo(order)
      if (own.bytes === 0) accounts.delete(this.account)
    }

    take(bytes: number): boolean {
      const isTaken = queue.take(bytes, this.most)
      if (isTaken) this.count(bytes)
      return isTaken
    }

    wait(bytes: number, admitted: () => void): true {
      const start = () => {
        this.waiting = undefined
        this.count(bytes)
        admitted()
      }
      this.waiting = { tenant: this.account, weight: bytes, most: this.most, start, isAdmitted: false }
      return (queue.wait(this.waiting), true)
    }

    grow(bytes: number, admitted: () => void): boolean {
      return this.take(bytes) || !this.wait(bytes, admitted)
    }

    shrink(bytes: number): void {
      const excess = this.bytes - bytes
      if (excess <= 0) return
      this.count(-excess)
      queue.giveBack(excess)
    }

    spare(letGo: () => void): void {
      const { bytes } = this
      this.count(-bytes)
      this.isLeaving = false
      this.use = "spare"
      this.letGo = letGo
      this.count(bytes)
      this.moveTo(spares)
      letSparesGo(isModest)
      queue.giveBack(0)
    }

    touch(): void {
      if (this.order === spares) this.moveTo(spares)
    }

    leaveTo(heir: Held, bytes: number): void {
      const left = Math.min(bytes, this.bytes)
      this.count(-left)
      heir.count(left)
      this.release()
      letSparesGo(isModest)
    }

    release(): void {
      const { bytes, waiting } = this
      this.moveTo(undefined)
      // Whoever holds this may be garbage that is not collected yet, and need not keep more.
      this.letGo = undefined
      if (waiting === undefined) return this.shrink(0)
      this.waiting = undefined
      this.count(-bytes)
      queue.leave(waiting, bytes)
    }

    revoke(): void {
      if (this.isLeaving) return
      this.isLeaving = true
      leaving += this.bytes
      this.letGo?.()
    }
  }

  const letSparesGo = (isEnough: () => boolean) => {
    for (let oldest = spares.first; oldest !== undefined && !isEnough(); oldest = spares.first) {
      oldest.moveTo(undefined)
      oldest.revoke()
    }
  }

  /** Whether what is spare leaves the routers' quarter alone, except for what was used last. */
  const isModest = () => queue.used() <= tenantsTotal || spares.first === spares.last

  /** What must go so that a place fits; nothing if an account would then have less than that of the place. */
  const revocableFor = ({ most, tenant, weight }: Place): ReadonlyArray<Held> => {
    const wanted = bytesOf(tenant) + weight
    const found: Array<Held> = []
    const others = Array.from(accounts.values(), ({ bytes, revocable }) => ({ bytes, oldest: revocable.first }))
    for (let free = most - queue.used() + leaving; free < weight;) {
      const largest = others.reduce((one, other) => (other.bytes > one.bytes ? other : one))
      const { oldest } = largest
      if (oldest === undefined || largest.bytes - oldest.bytes < wanted) return []
      largest.oldest = oldest.after
      if (oldest.isLeaving) continue
      largest.bytes -= oldest.bytes
      free += oldest.bytes
      found.push(oldest)
    }
    return found
  }

  const queue = makeFairQueue({
    total,
    waiting: Number.POSITIVE_INFINITY,
    admittedOf: bytesOf,
    makeRoom: (place) => {
      letSparesGo(() => queue.fits(place))
      if (!queue.fits(place) && accounts.size > 0) for (const one of revocableFor(place)) one.revoke()
    }
  })

  /** Holds nothing yet. `letGo` is called if an account that holds no more needs the room: release it soon. */
  const hold = (account: string, use: Use, letGo?: () => void): Holding => new Held(account, use, letGo)

  return {
    held,
    /** What requests of tenants may hold together. */
    tenantsTotal,
    hold,
    /**
     * Waits until an account may hold so many bytes more; fails if they never fit, or at the request's deadline. Those that
     * fit are held from the call on.
     */
    admit: (
      account: string,
      use: Use,
      bytes: number,
      letGo?: () => void
    ): Effect.Effect<Holding, ServiceUnavailable> => {
      const holding = new Held(account, use, letGo)
      if (holding.take(bytes)) return Effect.succeed(holding)
      if (bytes > holding.most) {
        const [needed, most] = [bytes, holding.most].map((bytes) => Math.ceil(bytes / mebibyte))
        const refused = `A ${use} of ${needed} MiB was refused: MEMORY_BUDGET leaves it ${most} MiB`
        return Effect.andThen(Effect.logWarning(refused), new ServiceUnavailable())
      }
      const admitted = untilStarted((start) => holding.wait(bytes, start))
      const release = Effect.sync(() => holding.release())
      return Effect.as(
        Effect.onError(Effect.interruptible(admitted), () => release),
        holding
      )
    }
  }
}

/** What requests, routes and pools of this process hold, in one budget. */
export type MemoryBudget = ReturnType<typeof makeMemoryBudget>
export const MemoryBudget = Context.Reference("byok/MemoryBudget", {
  defaultValue: () => makeMemoryBudget(192 * mebibyte)
})

/** A budget of so many bytes, and its series. */
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
