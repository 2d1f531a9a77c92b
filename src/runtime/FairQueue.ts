import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { CurrentDeadline } from "./Deadline.ts"
import { onEnd } from "./onEnd.ts"

/**
 * Calls `enter`, and waits until `start` is called. Fails if `enter` returns false, or at the request's deadline: then
 * the caller must give up its place.
 */
const untilStarted = (enter: (start: () => void) => boolean): Effect.Effect<undefined, ServiceUnavailable> =>
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

/** A tenant's request: waiting, in progress, or over. */
interface Place {
  readonly tenant: string
  /** Called at the request's turn after a wait. */
  start: () => void
  isAdmitted: boolean
}

/**
 * Makes a fair queue. Invariant: at most `inProgress` requests are in progress; a tenant starts another one only while
 * it has fewer in progress than places are free, so that stalled requests of one tenant take half of the places at most;
 * tenants are served in rotation, the requests of each in the order of their arrival.
 *
 * Effect's `PartitionedSemaphore` starves a tenant while two others keep returning.
 */
export const makeRequestQueue = ({
  inProgress: total,
  waiting
}: Pick<QueueLimits["Service"], "inProgress" | "waiting">): RequestQueue => {
  let inProgress = 0
  /** How many requests of each tenant are in progress. */
  const held = new Map<string, number>()
  /** The waiting places of each tenant. The tenants are in the order of their turns. */
  const queues = new Map<string, Set<Place>>()
  let isServing = false

  const mayStart = (tenant: string) => (held.get(tenant) ?? 0) < total - inProgress
  const admit = (place: Place) => {
    inProgress += 1
    held.set(place.tenant, (held.get(place.tenant) ?? 0) + 1)
    place.isAdmitted = true
  }
  const release = ({ tenant }: Place) => {
    inProgress -= 1
    const left = (held.get(tenant) ?? 0) - 1
    if (left > 0) held.set(tenant, left)
    else held.delete(tenant)
  }

  /** Starts the next waiting place of the first tenant that may start one. Returns false if none may. */
  const startNext = () => {
    for (const [tenant, queue] of queues) {
      if (inProgress >= total) return false
      if (!mayStart(tenant)) continue
      const [place] = queue
      queues.delete(tenant)
      if (place === undefined) continue
      queue.delete(place)
      if (queue.size > 0) queues.set(tenant, queue)
      admit(place)
      place.start()
      return true
    }
    return false
  }
  const serve = () => {
    // A started request may end at once and so call this again: the running loop serves the next place.
    if (isServing) return
    isServing = true
    try {
      while (startNext());
    } finally {
      isServing = false
    }
  }
  /** Adds a place to the queue of its tenant, and serves it if it fits. Returns false if that queue is full. */
  const enqueue = (place: Place): boolean => {
    const queue = queues.get(place.tenant) ?? new Set()
    if (queue.size >= waiting) return false
    queues.set(place.tenant, queue.add(place))
    serve()
    return true
  }
  /** Removes a waiting place, or ends an admitted one. */
  const leave = (place: Place) => {
    const queue = queues.get(place.tenant)
    if (queue?.delete(place) === true && queue.size === 0) queues.delete(place.tenant)
    if (place.isAdmitted) release(place)
    place.isAdmitted = false
    if (queues.size > 0) serve()
  }

  return (tenant, request) =>
    Effect.suspend(() => {
      const place: Place = { tenant, start: () => {}, isAdmitted: false }
      const turn = Effect.suspend(() => {
        // While others wait, those of this tenant may be among them only if it may not start another.
        if (!isServing && mayStart(tenant)) {
          admit(place)
          return request
        }
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
