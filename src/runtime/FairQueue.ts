import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { CurrentDeadline } from "./Deadline.ts"

/** What a tenant asks for: it waits in the tenant's line, is admitted, or has left. */
export interface Place {
  readonly tenant: string
  readonly weight: number
  /** The sum of what is admitted up to which it is admitted: the total, or less. */
  readonly most: number
  /** Called when it is admitted after having waited. */
  start: () => void
  isAdmitted: boolean
}

interface FairQueueLimits {
  readonly total: number
  readonly waiting: number
  /** How much is admitted of a tenant's; by default all have equally much. */
  readonly admittedOf?: (tenant: string) => number
  /** Asks others to leave, if that is fair, so that a place fits. */
  readonly makeRoom?: (place: Place) => void
}

/**
 * Makes a queue that tenants share. Invariant: the sum of what is admitted never exceeds the total, those who wait are
 * served in rotation of tenants, nobody is capped while nobody waits, and what was admitted is given back once. A place
 * that does not fit yet is passed over only by tenants who would then have no more than its own.
 *
 * Effect's `PartitionedSemaphore` is no alternative: it passes over a tenant while two others keep returning.
 */
export const makeFairQueue = ({ admittedOf = () => 0, makeRoom, total, waiting }: FairQueueLimits) => {
  let used = 0
  /** The waiting places by tenant; the tenant to be served next comes first. */
  const lines = new Map<string, Set<Place>>()
  let serving = false

  const fits = ({ most, weight }: Pick<Place, "most" | "weight">) => used + weight <= most
  const isExhausted = () => used >= total && makeRoom === undefined

  const next = (): Place | undefined => {
    let least = Number.POSITIVE_INFINITY
    for (const [place] of lines.values()) {
      if (place === undefined) continue
      const wanted = admittedOf(place.tenant) + place.weight
      if (wanted > least) continue
      if (!fits(place)) makeRoom?.(place)
      if (fits(place)) return place
      if (isExhausted()) return undefined
      least = wanted
    }
    return undefined
  }
  const serve = () => {
    // A request that ends as soon as it starts leads back here. The loop that started it takes its place into account.
    if (serving || lines.size === 0) return
    serving = true
    try {
      for (let place = next(); place !== undefined; place = next()) {
        const { tenant, weight } = place
        const line = lines.get(tenant)
        lines.delete(tenant)
        if (line?.delete(place) === true && line.size > 0) lines.set(tenant, line)
        used += weight
        place.isAdmitted = true
        place.start()
      }
    } finally {
      serving = false
    }
  }

  /** Admits a weight at once, if it fits and nobody waits. */
  const take = (weight: number, most = total): boolean => {
    if (lines.size > 0 || used + weight > most) return false
    used += weight
    return true
  }
  /** Puts a place into the line of its tenant, and starts it when its turn comes; returns false if the line is full. */
  const wait = (place: Place): boolean => {
    const line = lines.get(place.tenant) ?? new Set()
    if (line.size >= waiting) return false
    lines.set(place.tenant, line.add(place))
    serve()
    return true
  }
  const giveBack = (weight: number) => {
    used -= weight
    serve()
  }
  /** Takes a place out of its line, or gives back what it was admitted; and a weight that was taken besides. */
  const leave = (place: Place, taken = 0) => {
    const line = lines.get(place.tenant)
    if (place.isAdmitted) used -= place.weight
    else if (line?.delete(place) === true && line.size === 0) lines.delete(place.tenant)
    place.isAdmitted = false
    giveBack(taken)
  }

  return { take, wait, giveBack, leave, fits, used: () => used }
}

/** Waits until it has started; fails if `enter` returns false, or at the request's deadline: then it must leave. */
export const untilStarted = (enter: (start: () => void) => boolean): Effect.Effect<undefined, ServiceUnavailable> =>
  Effect.withFiber((fiber) =>
    Effect.callback((resume) => {
      const deadline = fiber.getRef(CurrentDeadline)
      const giveUp = () => resume(Effect.fail(new ServiceUnavailable()))
      let isWaiting = true
      let timer: NodeJS.Timeout | undefined
      const start = () => {
        isWaiting = false
        clearTimeout(timer)
        return deadline === undefined || performance.now() < deadline.until ? resume(Effect.undefined) : giveUp()
      }
      if (!enter(start)) return giveUp()
      if (isWaiting && deadline !== undefined) {
        timer = setTimeout(giveUp, Math.max(0, deadline.until - performance.now()))
      }
      return Effect.sync(() => clearTimeout(timer))
    })
  )

/** Everything that DATABASE_QUEUE limits (D14, F9). */
export interface QueueLimits {
  /** Statements that wait or run in one connection pool: reads, writes and background work have one each. */
  readonly statements: number
  /** Requests in progress on one connection pool, over all accounts: they fill the batches that run and the next ones. */
  readonly inProgress: number
  /** Requests of one account, or of all unknown tokens, that wait to be in progress. */
  readonly waiting: number
  /** Lines that an import handles at a time, or its own limit if that is lower: more would be refused. */
  readonly imports: number
}

/** Derives the limits from DATABASE_QUEUE. */
export const queueLimits = (queue: number): QueueLimits => {
  const inProgress = Math.ceil(queue / 8)
  return { statements: queue, inProgress, waiting: queue - inProgress, imports: queue }
}

export const QueueLimits = Context.Reference("byok/QueueLimits", { defaultValue: () => queueLimits(2000) })

/** Runs a request of a tenant when its turn comes; fails if too many of the tenant wait, or at the request's deadline. */
export type RequestQueue = <A, E, R>(
  tenant: string,
  request: Effect.Effect<A, E, R>
) => Effect.Effect<A, E | ServiceUnavailable, R>

/** Makes a fair queue of requests: only their number is bounded, over all tenants. */
export const makeRequestQueue = ({
  inProgress,
  waiting
}: Pick<QueueLimits, "inProgress" | "waiting">): RequestQueue => {
  const { leave, take, wait } = makeFairQueue({ total: inProgress, waiting })
  return (tenant, request) =>
    Effect.suspend(() => {
      const place: Place = { tenant, weight: 1, most: inProgress, start: () => {}, isAdmitted: false }
      const turn = Effect.suspend(() => {
        place.isAdmitted = take(1)
        if (place.isAdmitted) return request
        const started = untilStarted((start) => {
          place.start = start
          return wait(place)
        })
        return Effect.andThen(started, request)
      })
      // Releases the place however the request ends.
      return Effect.onExit(turn, () => Effect.sync(() => leave(place)))
    })
}

/** One for each pool of connections, so writes that stall delay no reads. A request whose body arrives is in none. */
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
