import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { CurrentDeadline } from "../port/Deadline.ts"
import { QueueLimits } from "../port/QueueLimits.ts"

/** Runs a request of a tenant when its turn comes; fails if too many of the tenant wait, or at the request's deadline. */
type FairQueue = <A, E, R>(
  tenant: string,
  request: Effect.Effect<A, E, R>
) => Effect.Effect<A, E | ServiceUnavailable, R>

/** A request in progress, or in the line of its tenant. */
interface Place {
  inProgress: boolean
  start: () => void
  deadline?: NodeJS.Timeout
}

/**
 * Makes a queue that tenants share. Only the number of requests in progress is bounded, over all tenants: requests that
 * exceed it wait, and tenants with waiting requests are served in rotation. `waiting` bounds the requests of one tenant
 * that wait.
 *
 * Effect's `PartitionedSemaphore` is no alternative: it passes over a tenant while two others keep returning.
 */
export const makeFairQueue = (limits: Pick<QueueLimits, "inProgress" | "waiting">): FairQueue => {
  let free = limits.inProgress
  /** The waiting requests by tenant; the tenant to be served next comes first. */
  const lines = new Map<string, Set<Place>>()
  let serving = false

  const serve = () => {
    // A request that ends as soon as it starts leads back here. The loop that started it takes its place into account.
    if (serving) return
    serving = true
    try {
      while (free > 0) {
        const [next] = lines
        if (next === undefined) return
        const [tenant, line] = next
        lines.delete(tenant)
        const [place] = line
        if (place === undefined) continue
        line.delete(place)
        if (line.size > 0) lines.set(tenant, line)
        free -= 1
        place.inProgress = true
        place.start()
      }
    } finally {
      serving = false
    }
  }
  const leave = (tenant: string, place: Place) => {
    clearTimeout(place.deadline)
    if (place.inProgress) {
      free += 1
      return serve()
    }
    const line = lines.get(tenant)
    line?.delete(place)
    if (line?.size === 0) lines.delete(tenant)
  }
  const wait = (tenant: string, place: Place) =>
    Effect.withFiber((fiber) =>
      Effect.callback<undefined, ServiceUnavailable>((resume) => {
        const until = fiber.getRef(CurrentDeadline)?.until
        const giveUp = () => resume(Effect.fail(new ServiceUnavailable()))
        place.start = () => (until === undefined || performance.now() < until ? resume(Effect.undefined) : giveUp())
        if (until !== undefined) place.deadline = setTimeout(giveUp, Math.max(0, until - performance.now()))
        lines.set(tenant, (lines.get(tenant) ?? new Set()).add(place))
      })
    )

  return (tenant, request) =>
    Effect.suspend(() => {
      const place: Place = { inProgress: false, start: () => {} }
      const turn = Effect.suspend(() => {
        if (free > 0 && lines.size === 0) {
          free -= 1
          place.inProgress = true
          return request
        }
        const isFull = (lines.get(tenant)?.size ?? 0) >= limits.waiting
        return isFull ? Effect.fail(new ServiceUnavailable()) : Effect.andThen(wait(tenant, place), request)
      })
      // Whatever counted the request as in progress, this is what counts it no longer.
      return Effect.onExit(turn, () => Effect.sync(() => leave(tenant, place)))
    })
}

/**
 * A queue for each pool of connections, so that a lock that stalls writes delays no reads, and one for lists: as a page may
 * be of megabytes, only two are in memory at a time. A request is in none while its body arrives.
 */
export class FairQueues extends Context.Service<
  FairQueues,
  { readonly reads: FairQueue; readonly writes: FairQueue; readonly lists: FairQueue }
>()("byok/FairQueues") {
  static readonly layer = Layer.effect(
    this,
    Effect.map(QueueLimits, (limits) => ({
      reads: makeFairQueue(limits),
      writes: makeFairQueue(limits),
      lists: makeFairQueue({ waiting: limits.waiting, inProgress: 2 })
    }))
  )
}
