import { randomUUID } from "node:crypto"
import { Clock, Context, Data, Effect, Exit, Fiber, Layer } from "effect"
import { NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { monotonicMillis } from "../domain/routing/Health.ts"
import type { Outcome } from "../domain/routing/Outcome.ts"
import { untilStarted } from "../runtime/FairQueue.ts"
import { type Reservation, MemoryBudget } from "../runtime/MemoryBudget.ts"
import { onEnd } from "../runtime/onEnd.ts"
import { repeatInBackground } from "../runtime/repeatInBackground.ts"
import type { PlannedRequest } from "../service/routing/PlannedRequest.ts"
import { Router } from "../service/routing/Router.ts"
import { PoolsUnavailable } from "../service/routing/RouterErrors.ts"
import type { OpenAttempt, Walk } from "../service/routing/Walk.ts"

/**
 * Keeps the routes that gateways open over HTTP. A route tries the keys of one plan in turn: the report of each attempt
 * opens the next. If a report ends its route, keeps the answer for a minute, if memory allows. Invariant: each route
 * has at most one open attempt; each attempt ends once, by its report or as abandoned; each report counts once, and
 * repetitions of the latest one get the same answer.
 */
export class OpenRoutes extends Context.Service<OpenRoutes>()("byok/OpenRoutes", {
  make: Effect.gen(function* () {
    const { walk: startWalk } = yield* Router
    const { admit, reserve } = yield* MemoryBudget
    const clock = yield* Clock.Clock
    const routes = new Map<string, Route>()
    /** Last answers of ended routes, oldest bucket first. Only the newest takes further answers. */
    const buckets = new Set<Bucket>()
    let newestBucket: Bucket | undefined

    /**
     * Opens a route and its first attempt; keeps no route without one. Fails with `ServiceUnavailable` if memory is
     * lacking. Passes `whenLost` a function that ends the route, to be called if the client may not get the answer.
     */
    const open = <E>(plan: Effect.Effect<PlannedRequest, E>, whenLost: (onLost: () => void) => void = () => {}) =>
      Effect.suspend(() => {
        endExpired()
        return Effect.flatMap(Effect.interruptible(plan), (planned) => {
          const id = randomUUID()
          const expires_at = clock.currentTimeMillisUnsafe() + maxRouteMillis
          if (planned.isEmpty) {
            const { retry_at } = planned
            return Effect.succeed({ id, expires_at, planned, next: undefined, retry_at })
          }
          const route = newRoute(startWalk(planned))
          const admitted = admit(planned.request.account_id, "route", bytesOfRoute(planned), makeEnd(id, route))
          return Effect.flatMap(admitted, (reservation) => {
            route.reservation = reservation
            route.expiresAt = monotonicMillis(clock) + maxRouteMillis
            routes.set(id, route)
            whenLost(makeEndUnread(id, route))
            // The budget may already have revoked the route's memory, which ends it.
            const opening: Effect.Effect<RouteAnswer, PoolsUnavailable | ServiceUnavailable> =
              route.walk === undefined ? Effect.fail(new ServiceUnavailable()) : openNext(route)
            const opened = onEnd(Effect.interruptible(opening), (exit) => {
              if (Exit.isFailure(exit)) end(id, route)
            })
            return Effect.map(opened, ({ next, retry_at }) => {
              // No key is left, so there is nothing to report.
              if (route.walk === undefined) end(id, route)
              return { id, expires_at, planned, next, retry_at }
            })
          })
        })
      }).pipe(Effect.uninterruptible)

    /**
     * Records the outcome of the open attempt; then opens the next one, or ends the route unless it `continues`. Only
     * the first of repeated reports counts, but a repetition may still end the route.
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
          const lastAnswer = findLastAnswer(id)
          return lastAnswer?.n === n ? lastAnswer.answer : Effect.fail(new NotFound())
        }
        const { lastReport, openAttempt, walk } = route
        // A repetition of the last report.
        if (lastReport?.n === n) {
          if (!continues && walk !== undefined)
            return endWithAnswer({ ...noNextAttempt, outcome: lastReport.outcome }, id, route, n)
          return lastReport.hasFailed ? answerWithNext(context, id, route, n, lastReport.outcome) : lastReport.answer
        }
        if (walk === undefined) return Effect.fail(new NotFound())
        if (openAttempt === undefined || n !== route.attemptsOpened) return Effect.fail(new AttemptNotOpen())
        const isLast = walk.record(openAttempt, outcome) || !continues
        closeAttempt(route, outcome)
        return isLast
          ? endWithAnswer({ ...noNextAttempt, outcome }, id, route, n)
          : answerWithNext(context, id, route, n, outcome)
      })

    /** Ends a route at its gateway's request. */
    const abandon = (id: string): Effect.Effect<void, NotFound> =>
      Effect.suspend(() => {
        endExpired()
        const route = routes.get(id)
        if (route?.walk === undefined) return Effect.fail(new NotFound())
        end(id, route)
        return Effect.void
      })

    /** Opens the next attempt, unless the route has ended. If no step is left, says when to retry. */
    const openNext = (route: Route): Effect.Effect<RouteAnswer, PoolsUnavailable> =>
      Effect.suspend(() => {
        const { walk } = route
        if (walk === undefined) return Effect.succeed(noNextAttempt)
        const opening = onEnd(withReservedAttempts(route, walk, walk.next), (exit) => {
          if (Exit.isSuccess(exit) && route.walk !== undefined) return
          route.openAttempt = undefined
          walk.close({ _tag: "Abandoned" })
        })
        return Effect.flatMap(opening, (attempt): Effect.Effect<RouteAnswer> => {
          if (route.walk === undefined) return Effect.succeed(noNextAttempt)
          if (attempt !== undefined) {
            route.openAttempt = attempt
            route.attemptsOpened += 1
            return Effect.succeed({ next: { n: route.attemptsOpened, attempt }, retry_at: null })
          }
          route.walk = undefined
          return Effect.map(walk.exhausted, ({ retry_at }) => ({ next: undefined, retry_at }))
        })
      })

    /** Reserves memory for more attempts once a route has used its reserved ones, then opens an attempt. */
    const withReservedAttempts = <A>(
      route: Route,
      walk: Walk,
      open: Effect.Effect<A, PoolsUnavailable>
    ): Effect.Effect<A, PoolsUnavailable> => {
      const { reservation } = route
      if (reservation === undefined || walk.attemptCount() < route.attemptsReserved) return open
      const extraAttempts = Math.max(attemptsPerReservation, walk.attemptCount() - route.attemptsReserved)
      const admitted = untilStarted((start) => {
        const onGrown = () => {
          route.attemptsReserved += extraAttempts
          start()
        }
        if (reservation.grow(bytesOf.attempt * extraAttempts, onGrown)) onGrown()
        return true
      })
      const reserved = Effect.catch(admitted, () => {
        // Stops waiting for more, and releases nothing.
        reservation.shrink(Number.POSITIVE_INFINITY)
        return Effect.fail(new PoolsUnavailable())
      })
      return Effect.andThen(reserved, open)
    }

    /**
     * Answers a report with the next attempt. Opens the attempt in a separate fiber, which goes on if the client
     * leaves, because the client may repeat the report. Remembers the report at once, so that a repetition gets the
     * same answer.
     */
    const answerWithNext = (
      context: Context.Context<never>,
      id: string,
      route: Route,
      n: number,
      outcome: Outcome
    ): Effect.Effect<ReportAnswer, PoolsUnavailable> => {
      const opening = Effect.map(openNext(route), (next) => ({ ...next, outcome }))
      const fiber = Effect.runForkWith(context)(opening)
      const answer = fiber.pollUnsafe() ?? Fiber.join(fiber)
      route.lastReport = { n, outcome, answer, hasFailed: false }
      fiber.addObserver((exit) => {
        if (route.lastReport?.n === n) route.lastReport.hasFailed = Exit.isFailure(exit)
        if (Exit.isSuccess(exit) && route.walk === undefined && routes.has(id)) endWithAnswer(exit.value, id, route, n)
      })
      return answer
    }

    const closeAttempt = (route: Route, outcome: Outcome) => {
      route.openAttempt = undefined
      route.walk?.close(outcome)
    }

    /** Ends a route by its last report. Keeps the answer for a minute, in part of the route's reserved memory. */
    const endWithAnswer = (answer: ReportAnswer, id: string, route: Route, n: number): LastAnswer["answer"] => {
      remove(id, route)
      const last = lastAnswerTo(n, answer)
      const now = monotonicMillis(clock)
      const bucket = bucketForAnswer(now)
      bucket.expiresAt = now + keepAnswerMillis
      bucket.answers.set(id, last)
      const bytes = last === usualAnswer ? bytesOf.sharedAnswer : bytesOf.answer
      route.reservation?.transfer(bucket.reservation, bucket.answers.size === 1 ? bytesOf.bucket + bytes : bytes)
      return last.answer
    }

    /** Returns the newest bucket, or makes one if that takes no more answers. Its memory counts for no account. */
    const bucketForAnswer = (now: number): Bucket => {
      if (newestBucket !== undefined && mayTakeAnswers(newestBucket, now)) return newestBucket
      const bucket: Bucket = { answers: new Map(), reservation: reserve("", "route"), createdAt: now, expiresAt: now }
      newestBucket = bucket
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
      if (bucket === newestBucket) newestBucket = undefined
      bucket.reservation.release()
    }

    /** Ends a route without keeping an answer, and releases its memory. */
    const end = (id: string, route: Route) => {
      remove(id, route)
      route.reservation?.release()
    }

    /** Removes a route and abandons its open attempt. The caller releases its memory. */
    const remove = (id: string, route: Route) => {
      routes.delete(id)
      closeAttempt(route, { _tag: "Abandoned" })
      route.walk = undefined
      route.lastReport = undefined
    }

    // Separate functions, so that these long-lived closures do not capture the request.
    const makeEnd = (id: string, route: Route) => () => end(id, route)
    /** Ends a route whose first answer was lost, unless a report shows that the gateway has read it. */
    const makeEndUnread = (id: string, route: Route) => () => {
      if (route.lastReport === undefined && route.walk !== undefined) end(id, route)
    }

    /** Ends expired routes and buckets, which expire in order of insertion. */
    const endExpired = () => {
      const now = monotonicMillis(clock)
      for (const [id, route] of routes) {
        if (now < route.expiresAt) break
        end(id, route)
      }
      for (const bucket of buckets) {
        if (now < bucket.expiresAt) break
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

/** The open attempt of a route and its number, from 1. */
export interface NextAttempt {
  readonly n: number
  readonly attempt: OpenAttempt
}

/** The next attempt of a route or, if there is none, when to retry. */
export interface RouteAnswer {
  readonly next: NextAttempt | undefined
  /** In milliseconds since 1970; null if unknown, or if no retry is needed. */
  readonly retry_at: number | null
}

/** The answer to a report: the outcome that it recorded, and the next attempt. */
export interface ReportAnswer extends RouteAnswer {
  readonly outcome: Outcome
}

/** The reported attempt is not open. */
class AttemptNotOpen extends Data.TaggedError("AttemptNotOpen") {}

/** Duration after which a route ends and its open attempt is abandoned. */
const maxRouteMillis = 10 * 60 * 1000

/** How long the last answer of an ended route is kept for repeated reports. */
const keepAnswerMillis = 60 * 1000

/** Maximum age and size of a bucket that takes further answers. */
const bucketLimits = { ageMillis: 1000, answers: 4096 }

/**
 * Approximate bytes of a route, a target and a character of its request, an attempt, a bucket of last answers, and each
 * answer in it: the shared `usualAnswer`, or another.
 */
const bytesOf = { route: 4096, target: 256, character: 2, attempt: 384, bucket: 768, sharedAnswer: 112, answer: 320 }

/** Attempts for which `bytesOf.route` has memory. A route that needs more reserves for at least as many at a time. */
const attemptsPerReservation = 8

const bytesOfRoute = ({ request: { model, targets, user_id } }: PlannedRequest): number =>
  bytesOf.route + bytesOf.target * targets.length + bytesOf.character * (model.length + (user_id?.length ?? 0))

interface Route {
  /** Undefined once the route has no further attempt, so that the walk is freed before the route. */
  walk: Walk | undefined
  reservation: Reservation | undefined
  /** In milliseconds of the monotonic clock. */
  expiresAt: number
  attemptsOpened: number
  /** Number of attempts whose memory is reserved. */
  attemptsReserved: number
  openAttempt: OpenAttempt | undefined
  lastReport: AnsweredReport | undefined
}

/** The last report of an open route, and the answer that its repetitions get too. */
interface AnsweredReport {
  readonly n: number
  readonly outcome: Outcome
  readonly answer: Effect.Effect<ReportAnswer, PoolsUnavailable>
  /** Whether the next attempt could not be opened. A repetition tries again. */
  hasFailed: boolean
}

const newRoute = (walk: Walk): Route => ({
  walk,
  reservation: undefined,
  expiresAt: Number.POSITIVE_INFINITY,
  attemptsOpened: 0,
  attemptsReserved: attemptsPerReservation,
  openAttempt: undefined,
  lastReport: undefined
})

/** The number of an ended route's last report, and the answer to its repetitions. */
interface LastAnswer {
  readonly n: number
  readonly answer: Exit.Exit<ReportAnswer>
}

/**
 * Last answers of ended routes by id. Bounded in age and size, and evicted as a whole, so that one reservation covers
 * many.
 */
interface Bucket {
  readonly answers: Map<string, LastAnswer>
  readonly reservation: Reservation
  /** In milliseconds of the monotonic clock, like `expiresAt`. */
  readonly createdAt: number
  /** A minute after its newest answer. */
  expiresAt: number
}

const noNextAttempt: RouteAnswer = { next: undefined, retry_at: null }

/** The last answer of most routes, shared to save memory. */
const usualAnswer: LastAnswer = { n: 1, answer: Exit.succeed({ ...noNextAttempt, outcome: { _tag: "Succeeded" } }) }

const lastAnswerTo = (n: number, answer: ReportAnswer): LastAnswer =>
  n === 1 && answer.outcome._tag === "Succeeded" ? usualAnswer : { n, answer: Exit.succeed(answer) }

const mayTakeAnswers = ({ answers, createdAt }: Bucket, now: number): boolean =>
  now < createdAt + bucketLimits.ageMillis && answers.size < bucketLimits.answers
