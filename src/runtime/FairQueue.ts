import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { CurrentDeadline } from "./Deadline.ts"
import { onEnd } from "./onEnd.ts"

/**
 * Makes a queue that shares a total weight, such as bytes of memory or requests in progress, among tenants, who claim
 * weight by `Place`s. Invariant: admitted weights never exceed the total and are released once; tenants are served in
 * rotation; no tenant is capped while nobody waits. A place that does not fit yet is overtaken only by places whose
 * tenants would then have no more than its tenant would.
 *
 * Effect's `PartitionedSemaphore` starves a tenant while two others keep returning.
 */
export const makeFairQueue = ({ admittedOf = () => 0, makeRoom, total, waiting }: FairQueueLimits) => {
  let used = 0
  /** The waiting places of each tenant. The tenants are in the order of their turns. */
  const queues = new Map<string, Set<Place>>()
  let isServing = false

  const fits = ({ limit, weight }: Pick<Place, "limit" | "weight">) => used + weight <= limit
  const isExhausted = () => used >= total && makeRoom === undefined

  /** The first place that fits. Once one does not fit, skips tenants that would have more than its tenant. */
  const nextPlace = (): Place | undefined => {
    let leastShare = Number.POSITIVE_INFINITY
    for (const [place] of queues.values()) {
      if (place === undefined) continue
      const share = admittedOf(place.tenant) + place.weight
      if (share > leastShare) continue
      if (!fits(place)) makeRoom?.(place)
      if (fits(place)) return place
      if (isExhausted()) return undefined
      leastShare = share
    }
    return undefined
  }
  const serve = () => {
    // `start` may release weight and so call this again: the running loop serves the next place.
    if (isServing || queues.size === 0) return
    isServing = true
    try {
      for (let place = nextPlace(); place !== undefined; place = nextPlace()) {
        const { tenant, weight } = place
        const queue = queues.get(tenant)
        queues.delete(tenant)
        if (queue?.delete(place) === true && queue.size > 0) queues.set(tenant, queue)
        used += weight
        place.isAdmitted = true
        place.start()
      }
    } finally {
      isServing = false
    }
  }

  /** Admits a weight at once, if it fits and nobody waits. */
  const tryTake = (weight: number, limit = total): boolean => {
    if (queues.size > 0 || used + weight > limit) return false
    used += weight
    return true
  }
  /** Adds a place to the queue of its tenant, and serves it if it fits. Returns false if that queue is full. */
  const enqueue = (place: Place): boolean => {
    const queue = queues.get(place.tenant) ?? new Set()
    if (queue.size >= waiting) return false
    queues.set(place.tenant, queue.add(place))
    serve()
    return true
  }
  const release = (weight: number) => {
    used -= weight
    serve()
  }
  /** Removes a waiting place, or releases an admitted one. Also releases `extraWeight` that was admitted before it. */
  const leave = (place: Place, extraWeight = 0) => {
    const queue = queues.get(place.tenant)
    if (place.isAdmitted) used -= place.weight
    else if (queue?.delete(place) === true && queue.size === 0) queues.delete(place.tenant)
    place.isAdmitted = false
    release(extraWeight)
  }

  return { tryTake, enqueue, release, leave, fits, used: () => used }
}

/** A tenant's claim to some of the weight: waiting in the tenant's queue, admitted, or withdrawn. */
export interface Place {
  readonly tenant: string
  readonly weight: number
  /** Maximum sum of admitted weights including this one: the total, or less. */
  readonly limit: number
  /** Called on admission after a wait. */
  start: () => void
  isAdmitted: boolean
}

interface FairQueueLimits {
  readonly total: number
  /** Maximum waiting places of a tenant. */
  readonly waiting: number
  /** Weight that a tenant has now, for fairness; by default the same for all. */
  readonly admittedOf?: (tenant: string) => number
  /** Evicts others' weight so that a place fits, if that is fair. */
  readonly makeRoom?: (place: Place) => void
}

/**
 * Calls `enter`, and waits until `start` is called. Fails if `enter` returns false, or at the request's deadline: then
 * the caller must give up its place.
 */
export const untilStarted = (enter: (start: () => void) => boolean): Effect.Effect<undefined, ServiceUnavailable> =>
  Effect.withFiber((fiber) =>
    Effect.callback((resume) => {
      const deadline = fiber.getRef(CurrentDeadline)
      const fail = () => resume(Effect.fail(new ServiceUnavailable()))
      let isWaiting = true
      let timer: NodeJS.Timeout | undefined
      const start = () => {
        isWaiting = false
        clearTimeout(timer)
        return deadline === undefined || performance.now() < deadline.until ? resume(Effect.undefined) : fail()
      }
      if (!enter(start)) return fail()
      if (isWaiting && deadline !== undefined) {
        timer = setTimeout(fail, Math.max(0, deadline.until - performance.now()))
      }
      return Effect.sync(() => clearTimeout(timer))
    })
  )

/** The limits derived from DATABASE_QUEUE (D14, F9). */
export class QueueLimits extends Context.Service<
  QueueLimits,
  {
    /** Requests that wait for a statement or run one, on one connection pool: of reads, writes or background work. */
    readonly statements: number
    /** Requests in progress on one connection pool: enough to fill the running batches and the next ones. */
    readonly inProgress: number
    /** Waiting requests of one account, or of all unknown tokens. */
    readonly waiting: number
    /** Lines of its file that an import handles at a time, unless its own limit is lower. */
    readonly imports: number
  }
>()("byok/QueueLimits") {}

export const queueLimits = (queue: number): QueueLimits["Service"] => {
  const inProgress = Math.ceil(queue / 8)
  return { statements: queue, inProgress, waiting: queue - inProgress, imports: queue }
}

/** Runs a request at its tenant's turn. Fails if too many requests of the tenant wait, or at the request's deadline. */
export type RequestQueue = <A, E, R>(
  tenant: string,
  request: Effect.Effect<A, E, R>
) => Effect.Effect<A, E | ServiceUnavailable, R>

/** Makes a fair queue that bounds the number of requests in progress. */
export const makeRequestQueue = ({
  inProgress,
  waiting
}: Pick<QueueLimits["Service"], "inProgress" | "waiting">): RequestQueue => {
  const { enqueue, leave, tryTake } = makeFairQueue({ total: inProgress, waiting })
  return (tenant, request) =>
    Effect.suspend(() => {
      const place: Place = { tenant, weight: 1, limit: inProgress, start: () => {}, isAdmitted: false }
      const turn = Effect.suspend(() => {
        place.isAdmitted = tryTake(1)
        if (place.isAdmitted) return request
        const started = untilStarted((start) => {
          place.start = start
          return enqueue(place)
        })
        return Effect.andThen(started, request)
      })
      return onEnd(turn, () => leave(place))
    })
}

/** One queue per connection pool, so stalled writes delay no reads. Operations join once their body has arrived. */
export class RequestQueues extends Context.Service<
  RequestQueues,
  { readonly reads: RequestQueue; readonly writes: RequestQueue }
>()("byok/RequestQueues") {
  static readonly layer = Layer.effect(
    this,
    Effect.map(QueueLimits, (limits) => ({
      reads: makeRequestQueue(limits),
      writes: makeRequestQueue(limits)
    }))
  )
}
