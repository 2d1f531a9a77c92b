import { randomFillSync } from "node:crypto"
import { Clock, Context, Data, Effect, Exit, Fiber, Layer } from "effect"
import { NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { monotonicMillis } from "../domain/routing/Health.ts"
import type { Outcome } from "../domain/routing/Outcome.ts"
import { untilStarted } from "../runtime/FairQueue.ts"
import { type Reservation, MemoryBudget } from "../runtime/MemoryBudget.ts"
import { repeatInBackground } from "../runtime/repeatInBackground.ts"
import type { PlannedRequest } from "../service/routing/PlannedRequest.ts"
import { Router } from "../service/routing/Router.ts"
import { PoolsUnavailable } from "../service/routing/RouterErrors.ts"
import type { OpenAttempt, Walk } from "../service/routing/Walk.ts"

/** The open attempt of a route and its number, from 1. */
export interface NextAttempt {
  readonly n: number
  readonly attempt: OpenAttempt
}

/** Answers a report with the next attempt, or when to retry. */
export interface RouteAnswer {
  readonly next: NextAttempt | undefined
  /** In milliseconds since 1970; null if unknown, or if an attempt gave an answer to return. */
  readonly retry_at: number | null
}

/** The answer to a report, with its outcome. */
export interface ReportAnswer extends RouteAnswer {
  readonly outcome: Outcome
}

/** A report about an attempt that is not open. */
class AttemptNotOpen extends Data.TaggedError("AttemptNotOpen") {}

/** Maximum duration of a route, in milliseconds, after which its open attempt is abandoned. */
const longestRoute = 10 * 60 * 1000

/** How long the last answer of an ended route is kept for repeated reports, in milliseconds. */
const answerKept = 60 * 1000

/** Maximum age of a bucket that takes further answers, in milliseconds, and its maximum size. */
const bucketLimits = { millis: 1000, answers: 4096 }

/**
 * Approximate memory, in bytes: of an open route, each target and character of its request, and each attempt beyond the first
 * few; of ended routes, a bucket and each answer in it.
 */
const bytesOf = { route: 4 * 1024, target: 256, character: 2, attempt: 384, bucket: 768, answer: 112, otherAnswer: 320 }

/** Attempts reserved with their route, and the minimum of further ones reserved at a time. */
const attemptsReserved = 8

const weightOf = ({ request: { model, targets, user_id } }: PlannedRequest): number =>
  bytesOf.route + bytesOf.target * targets.length + bytesOf.character * (model.length + (user_id?.length ?? 0))

interface Route {
  /** Undefined once the route has ended, to free it before this is collected. */
  walk: Walk | undefined
  reservation: Reservation | undefined
  /** By the monotonic clock. */
  expires: number
  /** Number of attempts opened so far. */
  opened: number
  /** Number of attempts whose memory is reserved. */
  reserved: number
  openAttempt: OpenAttempt | undefined
  lastReport: AnsweredReport | undefined
}

/** A report, and the answer that its repetitions get too. */
interface AnsweredReport {
  readonly n: number
  readonly outcome: Outcome
  readonly answer: Effect.Effect<ReportAnswer, PoolsUnavailable>
  hasFailed: boolean
}

const newRoute = (walk: Walk): Route => ({
  walk,
  reservation: undefined,
  expires: Number.POSITIVE_INFINITY,
  opened: 0,
  reserved: attemptsReserved,
  openAttempt: undefined,
  lastReport: undefined
})

/** The last report of an ended route by number, and the answer to its repetitions. */
interface LastAnswer {
  readonly n: number
  readonly answer: Exit.Exit<ReportAnswer>
}

/** Last answers by route id, evicted together. */
interface Bucket {
  readonly answers: Map<string, LastAnswer>
  readonly reservation: Reservation
  readonly since: number
  /** A minute after its newest answer. */
  expires: number
}

const routeOver: RouteAnswer = { next: undefined, retry_at: null }

/** The last answer of most routes, shared to save memory. */
const usualAnswer: LastAnswer = { n: 1, answer: Exit.succeed({ ...routeOver, outcome: { _tag: "Succeeded" } }) }

const lastAnswerTo = (n: number, answer: ReportAnswer): LastAnswer =>
  n === 1 && answer.outcome._tag === "Succeeded" ? usualAnswer : { n, answer: Exit.succeed(answer) }

const mayTakeAnswers = ({ answers, since }: Bucket, now: number): boolean =>
  now < since + bucketLimits.millis && answers.size < bucketLimits.answers

const randomBytes = Buffer.alloc(4096)
let offset = randomBytes.length

/** Makes an id of 128 random bits as a flat string: `randomUUID` returns a rope of fifteen parts. */
const makeId = (): string => {
  if (offset === randomBytes.length) {
    randomFillSync(randomBytes)
    offset = 0
  }
  return randomBytes.toString("hex", offset, (offset += 16))
}

/**
 * The walks that gateways drive over HTTP, one request per attempt. Keeps open routes by id, and for a minute the last answers
 * of ended ones, in buckets. Invariant: each route has at most one open attempt; each attempt ends once, by its report or as
 * abandoned; each report is answered once, and repetitions get the same answer.
 */
export class OpenRoutes extends Context.Service<OpenRoutes>()("byok/OpenRoutes", {
  make: Effect.gen(function* () {
    const { walk } = yield* Router
    const { admit, reserve } = yield* MemoryBudget
    const clock = yield* Clock.Clock
    const routes = new Map<string, Route>()
    /** Oldest first; only the newest takes answers. */
    const buckets = new Set<Bucket>()
    let newest: Bucket | undefined
    /** No route and no bucket expires before. */
    let earliest = Number.NEGATIVE_INFINITY

    /**
     * Opens a route and its first attempt; fails with `ServiceUnavailable` if too many are open. `ifUnread` gets the function
     * that ends the route if the client disconnects without the answer.
     */
    const open = <E>(plan: Effect.Effect<PlannedRequest, E>, ifUnread: (abandon: () => void) => void = () => {}) =>
      Effect.suspend(() => {
        endExpired()
        return Effect.flatMap(Effect.interruptible(plan), (planned) => {
          const id = makeId()
          const expires_at = clock.currentTimeMillisUnsafe() + longestRoute
          if (planned.isEmpty) {
            const { retry_at } = planned
            return Effect.succeed({ id, expires_at, planned, next: undefined, retry_at })
          }
          const route = newRoute(walk(planned))
          const admitted = admit(planned.request.account_id, "route", weightOf(planned), makeEnd(id, route))
          return Effect.flatMap(admitted, (reservation) => {
            route.reservation = reservation
            route.expires = monotonicMillis(clock) + longestRoute
            routes.set(id, route)
            ifUnread(makeEndUnread(id, route))
            const first: Effect.Effect<RouteAnswer, PoolsUnavailable | ServiceUnavailable> =
              route.walk === undefined ? Effect.fail(new ServiceUnavailable()) : openNext(route)
            const answer = Effect.onError(Effect.interruptible(first), () => Effect.sync(() => end(id, route)))
            return Effect.map(answer, ({ next, retry_at }) => {
              if (route.walk === undefined) end(id, route)
              return { id, expires_at, planned, next, retry_at }
            })
          })
        })
      }).pipe(Effect.uninterruptible)

    /**
     * Records the outcome of the open attempt, and opens the next one if the route `continues`. Only the first of repeated
     * reports counts.
     */
    const report = (
      id: string,
      n: number,
      outcome: Outcome,
      continues = true
    ): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> =>
      Effect.withFiber(({ context }): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> => {
        endExpired()
        const route = routes.get(id)
        if (route === undefined) {
          const kept = findLastAnswer(id)
          return kept?.n === n ? kept.answer : Effect.fail(new NotFound())
        }
        const { lastReport, openAttempt, walk } = route
        if (lastReport?.n === n) {
          if (!continues && walk !== undefined)
            return endWith({ ...routeOver, outcome: lastReport.outcome }, id, route, n)
          return lastReport.hasFailed ? answerWithNext(context, id, route, n, lastReport.outcome) : lastReport.answer
        }
        if (walk === undefined) return Effect.fail(new NotFound())
        if (openAttempt === undefined || n !== route.opened) return Effect.fail(new AttemptNotOpen())
        const isLast = walk.record(openAttempt, outcome) || !continues
        closeAttempt(route, outcome)
        return isLast
          ? endWith({ ...routeOver, outcome }, id, route, n)
          : answerWithNext(context, id, route, n, outcome)
      })

    /** Ends a route on request of its client. */
    const abandon = (id: string): Effect.Effect<void, NotFound> =>
      Effect.suspend(() => {
        endExpired()
        const route = routes.get(id)
        if (route?.walk === undefined) return Effect.fail(new NotFound())
        end(id, route)
        return Effect.void
      })

    /** Opens the next attempt, unless the route has ended. */
    const openNext = (route: Route): Effect.Effect<RouteAnswer, PoolsUnavailable> =>
      Effect.suspend(() => {
        const { walk } = route
        if (walk === undefined) return Effect.succeed(routeOver)
        const opened = Effect.onExit(Effect.andThen(reserveAttempts(route, walk), walk.next), (exit) =>
          Effect.sync(() => {
            if (Exit.isSuccess(exit) && route.walk !== undefined) return
            route.openAttempt = undefined
            walk.close({ _tag: "Abandoned" })
          })
        )
        return Effect.flatMap(opened, (attempt): Effect.Effect<RouteAnswer> => {
          if (route.walk === undefined) return Effect.succeed(routeOver)
          if (attempt !== undefined) {
            route.openAttempt = attempt
            route.opened += 1
            return Effect.succeed({ next: { n: route.opened, attempt }, retry_at: null })
          }
          route.walk = undefined
          return Effect.map(walk.exhausted, ({ retry_at }) => ({ next: undefined, retry_at }))
        })
      })

    /** Reserves memory for the attempts of a long walk. */
    const reserveAttempts = (route: Route, walk: Walk): Effect.Effect<void, PoolsUnavailable> =>
      Effect.suspend(() => {
        const { reservation } = route
        if (reservation === undefined || walk.attemptCount() < route.reserved) return Effect.void
        const more = Math.max(attemptsReserved, walk.attemptCount() - route.reserved)
        route.reserved += more
        const admitted = untilStarted((start) => {
          if (reservation.grow(bytesOf.attempt * more, start)) start()
          return true
        })
        return Effect.mapError(admitted, () => new PoolsUnavailable())
      })

    /**
     * Answers a report with the next attempt, opened in a separate fiber: a client that leaves may repeat the report. Records
     * the report at once, so that no repetition comes before.
     */
    const answerWithNext = (
      context: Context.Context<never>,
      id: string,
      route: Route,
      n: number,
      outcome: Outcome
    ): Effect.Effect<ReportAnswer, PoolsUnavailable> => {
      const opening = Effect.map(openNext(route), (next) => ({ ...next, outcome }))
      const opened = Effect.runForkWith(context)(opening)
      const answer = opened.pollUnsafe() ?? Fiber.join(opened)
      route.lastReport = { n, outcome, answer, hasFailed: false }
      opened.addObserver((exit) => {
        if (route.lastReport?.n === n) route.lastReport.hasFailed = Exit.isFailure(exit)
        if (Exit.isSuccess(exit) && route.walk === undefined && routes.has(id)) endWith(exit.value, id, route, n)
      })
      return answer
    }

    const closeAttempt = (route: Route, outcome: Outcome) => {
      route.openAttempt = undefined
      route.walk?.close(outcome)
    }

    /** Ends a route by its last report, and keeps the answer in the route's memory for a minute. */
    const endWith = (answer: ReportAnswer, id: string, route: Route, n: number): LastAnswer["answer"] => {
      remove(id, route)
      const last = lastAnswerTo(n, answer)
      const now = monotonicMillis(clock)
      const bucket = bucketAt(now)
      bucket.expires = now + answerKept
      bucket.answers.set(id, last)
      const bytes = last === usualAnswer ? bytesOf.answer : bytesOf.otherAnswer
      route.reservation?.transfer(bucket.reservation, bucket.answers.size === 1 ? bytesOf.bucket + bytes : bytes)
      return last.answer
    }

    /** The newest bucket, or a new one if that takes no more answers. */
    const bucketAt = (now: number): Bucket => {
      if (newest !== undefined && mayTakeAnswers(newest, now)) return newest
      const bucket: Bucket = { answers: new Map(), reservation: reserve("", "route"), since: now, expires: now }
      newest = bucket
      buckets.add(bucket)
      bucket.reservation.makeEvictable(() => evict(bucket))
      return bucket
    }

    const findLastAnswer = (id: string): LastAnswer | undefined => {
      for (const { answers } of buckets) {
        const last = answers.get(id)
        if (last !== undefined) return last
      }
      return undefined
    }

    const evict = (bucket: Bucket) => {
      buckets.delete(bucket)
      if (bucket === newest) newest = undefined
      bucket.reservation.release()
    }

    /** Ends a route without an answer, and releases its memory. */
    const end = (id: string, route: Route) => {
      remove(id, route)
      route.reservation?.release()
    }

    /** Removes a route and abandons its open attempt. Leaves its memory to the caller. */
    const remove = (id: string, route: Route) => {
      routes.delete(id)
      closeAttempt(route, { _tag: "Abandoned" })
      route.walk = undefined
      route.lastReport = undefined
    }

    // Separate functions, so that these long-lived closures do not capture the request.
    const makeEnd = (id: string, route: Route) => () => end(id, route)
    const makeEndUnread = (id: string, route: Route) => () => {
      if (route.lastReport === undefined && route.walk !== undefined) end(id, route)
    }

    /** Ends expired routes and buckets, which expire in order of insertion. */
    const endExpired = () => {
      const now = monotonicMillis(clock)
      if (now < earliest) return
      earliest = now + answerKept
      for (const [id, route] of routes) {
        earliest = Math.min(earliest, route.expires)
        if (now < route.expires) break
        end(id, route)
      }
      for (const bucket of buckets) {
        earliest = Math.min(earliest, bucket.expires)
        if (now < bucket.expires) break
        evict(bucket)
      }
    }

    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const bucket of buckets) evict(bucket)
        for (const [id, route] of routes) end(id, route)
      })
    )
    yield* repeatInBackground("1 second", Effect.sync(endExpired), "Routes could not be ended")

    return { open, report, abandon }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
