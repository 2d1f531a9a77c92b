import { randomFillSync } from "node:crypto"
import { Clock, Context, Data, Effect, Exit, Fiber, Layer } from "effect"
import { NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { monotonicMillis } from "../domain/routing/Health.ts"
import type { Outcome } from "../domain/routing/Outcome.ts"
import { untilStarted } from "../runtime/FairQueue.ts"
import { type Holding, MemoryBudget } from "../runtime/MemoryBudget.ts"
import { repeatInBackground } from "../runtime/repeatInBackground.ts"
import type { PlannedRequest } from "../service/routing/PlannedRequest.ts"
import { Router } from "../service/routing/Router.ts"
import { PoolsUnavailable } from "../service/routing/RouterErrors.ts"
import type { OpenAttempt, Walk } from "../service/routing/Walk.ts"

/** How long a route may take, in milliseconds. Then its open attempt is abandoned. */
const longestRoute = 10 * 60 * 1000

/** For how long the last answer of an ended route may be asked for again, in milliseconds. */
const answerKept = 60 * 1000

/** For how long last answers are added to a bucket, in milliseconds, and how many at most. */
const bucketed = { millis: 1000, answers: 4096 }

/**
 * About how many bytes a route takes, each target and each character of its request, and each attempt beyond the first few; and
 * once it has ended, a bucket and each answer in it.
 */
const bytesOf = { route: 4 * 1024, target: 256, character: 2, attempt: 384, bucket: 768, answer: 112, otherAnswer: 320 }

/** How many attempts are counted with their route, and how many more at a time. */
const attemptsCounted = 8

const weightOf = ({ request: { model, targets, user_id } }: PlannedRequest): number =>
  bytesOf.route + bytesOf.target * targets.length + bytesOf.character * (model.length + (user_id?.length ?? 0))

/** A report about another attempt than the open one. */
export class AttemptNotOpen extends Data.TaggedError("AttemptNotOpen") {}

/** The attempt that is open now, with its number from 1; none if the route has ended. */
export interface NextAttempt {
  readonly n: number
  readonly attempt: OpenAttempt
}

/** What a route answers to the last report: whether to go on, or when to come back. */
export interface RouteAnswer {
  readonly next: NextAttempt | undefined
  /** In milliseconds since 1970; null if that is not known, or an attempt gave an answer to return. */
  readonly retry_at: number | null
}

/** The answer to a report, and what was reported. */
export interface ReportAnswer extends RouteAnswer {
  readonly outcome: Outcome
}

interface Route {
  /** None once the route has ended: the map of routes may hold this while it is garbage. */
  walk: Walk | undefined
  holding: Holding | undefined
  /** When it expires, by the monotonic clock. */
  until: number
  /** How many attempts were opened, and of how many the memory is counted. */
  opened: number
  counted: number
  open: OpenAttempt | undefined
  /** The last report, and what answers it and every repetition of it. */
  last:
    | {
        readonly n: number
        readonly outcome: Outcome
        readonly answer: Effect.Effect<ReportAnswer, PoolsUnavailable>
        hasFailed: boolean
      }
    | undefined
}

const newRoute = (walk: Walk): Route => ({
  walk,
  holding: undefined,
  until: Number.POSITIVE_INFINITY,
  opened: 0,
  counted: attemptsCounted,
  open: undefined,
  last: undefined
})

const drawn = Buffer.alloc(4096)
let at = drawn.length

/** Makes an id of 128 random bits in one piece: that of `randomUUID` is a tree of fifteen, and kept as such. */
const makeId = (): string => {
  if (at === drawn.length) {
    randomFillSync(drawn)
    at = 0
  }
  return drawn.toString("hex", at, (at += 16))
}

/** The number of the last report of a route that has ended, and what answers every repetition of it. */
interface LastAnswer {
  readonly n: number
  readonly answer: Exit.Exit<ReportAnswer>
}

/** Last answers that are forgotten together, by the ids of their routes. */
interface Bucket {
  readonly answers: Map<string, LastAnswer>
  readonly holding: Holding
  readonly since: number
  /** A minute after the last one was added. */
  until: number
}

const over: RouteAnswer = { next: undefined, retry_at: null }

/** That of most routes, which is kept once for all of them. */
const usual: LastAnswer = { n: 1, answer: Exit.succeed({ ...over, outcome: { _tag: "Succeeded" } }) }

/**
 * The walks that gateways drive over HTTP, one request an attempt. Invariant: of each route at most one attempt is open, every
 * attempt ends once, by its report or as abandoned, and the answer to a report is made once.
 */
export class OpenRoutes extends Context.Service<OpenRoutes>()("byok/OpenRoutes", {
  make: Effect.gen(function* () {
    const { walk } = yield* Router
    const { admit, hold } = yield* MemoryBudget
    const clock = yield* Clock.Clock
    const routes = new Map<string, Route>()
    /** The oldest first; answers are added to the newest one. */
    const buckets = new Set<Bucket>()
    let newest: Bucket | undefined
    /** No route expires and no answer is forgotten before. */
    let earliest = Number.NEGATIVE_INFINITY

    const close = (route: Route, outcome: Outcome) => {
      route.open = undefined
      route.walk?.close(outcome)
    }

    const stop = (id: string, route: Route) => {
      routes.delete(id)
      close(route, { _tag: "Abandoned" })
      route.walk = undefined
      route.last = undefined
    }

    /** Ends a route, and abandons its attempt if one is open. */
    const end = (id: string, route: Route) => {
      stop(id, route)
      route.holding?.release()
    }
    // What these return outlives the request: in its context would stand all that the request took to open the route.
    const revoking = (id: string, route: Route) => () => end(id, route)
    const givingUp = (id: string, route: Route) => () => {
      if (route.last === undefined && route.walk !== undefined) end(id, route)
    }

    const forget = (bucket: Bucket) => {
      buckets.delete(bucket)
      if (bucket === newest) newest = undefined
      bucket.holding.release()
    }

    const bucketAt = (now: number): Bucket => {
      if (newest !== undefined && now < newest.since + bucketed.millis && newest.answers.size < bucketed.answers)
        return newest
      const bucket: Bucket = { answers: new Map(), holding: hold("", "route"), since: now, until: now }
      newest = bucket
      buckets.add(bucket)
      bucket.holding.spare(() => forget(bucket))
      return bucket
    }

    /** Ends a route by its last report, whose answer is kept for a while. */
    const finish = (id: string, route: Route, n: number, answer: ReportAnswer): LastAnswer["answer"] => {
      stop(id, route)
      const isUsual = n === 1 && answer.outcome._tag === "Succeeded"
      const kept = isUsual ? usual : { n, answer: Exit.succeed(answer) }
      const now = monotonicMillis(clock)
      const bucket = bucketAt(now)
      bucket.until = now + answerKept
      bucket.answers.set(id, kept)
      const bytes = isUsual ? bytesOf.answer : bytesOf.otherAnswer
      route.holding?.leaveTo(bucket.holding, bucket.answers.size === 1 ? bytesOf.bucket + bytes : bytes)
      return kept.answer
    }

    const lastAnswerOf = (id: string): LastAnswer | undefined => {
      for (const { answers } of buckets) {
        const last = answers.get(id)
        if (last !== undefined) return last
      }
      return undefined
    }

    /** The first route and the first bucket are the first to expire. */
    const endExpired = () => {
      const now = monotonicMillis(clock)
      if (now < earliest) return
      earliest = now + answerKept
      for (const [id, route] of routes) {
        earliest = Math.min(earliest, route.until)
        if (now < route.until) break
        end(id, route)
      }
      for (const bucket of buckets) {
        earliest = Math.min(earliest, bucket.until)
        if (now < bucket.until) break
        forget(bucket)
      }
    }

    /** Counts the attempts of a long walk, in memory that is admitted. */
    const countAttempts = (route: Route, walk: Walk): Effect.Effect<void, PoolsUnavailable> =>
      Effect.suspend(() => {
        const { holding } = route
        if (holding === undefined || walk.noted() < route.counted) return Effect.void
        const more = Math.max(attemptsCounted, walk.noted() - route.counted)
        route.counted += more
        const admitted = untilStarted((start) => {
          if (holding.grow(bytesOf.attempt * more, start)) start()
          return true
        })
        return Effect.mapError(admitted, () => new PoolsUnavailable())
      })

    /** Opens the next attempt, unless the route ends meanwhile. */
    const openNext = (route: Route): Effect.Effect<RouteAnswer, PoolsUnavailable> =>
      Effect.suspend(() => {
        const { walk } = route
        if (walk === undefined) return Effect.succeed(over)
        const opened = Effect.onExit(Effect.andThen(countAttempts(route, walk), walk.next), (exit) =>
          Effect.sync(() => {
            if (Exit.isSuccess(exit) && route.walk !== undefined) return
            route.open = undefined
            walk.close({ _tag: "Abandoned" })
          })
        )
        return Effect.flatMap(opened, (attempt): Effect.Effect<RouteAnswer> => {
          if (route.walk === undefined) return Effect.succeed(over)
          if (attempt !== undefined) {
            route.open = attempt
            route.opened += 1
            return Effect.succeed({ next: { n: route.opened, attempt }, retry_at: null })
          }
          route.walk = undefined
          return Effect.map(walk.exhausted, ({ retry_at }) => ({ next: undefined, retry_at }))
        })
      })

    /** Goes on after a report, in a fiber of its own: whoever reports may leave, and asks again for the same answer. */
    const answered = (id: string, route: Route, n: number, outcome: Outcome) =>
      Effect.withFiber<ReportAnswer, PoolsUnavailable>((fiber) => {
        const answer = Effect.map(openNext(route), (next) => ({ ...next, outcome }))
        const answering = Effect.runForkWith(fiber.context)(answer)
        const joined = answering.pollUnsafe() ?? Fiber.join(answering)
        route.last = { n, outcome, answer: joined, hasFailed: false }
        answering.addObserver((exit) => {
          if (route.last?.n === n) route.last.hasFailed = Exit.isFailure(exit)
          if (Exit.isSuccess(exit) && route.walk === undefined && routes.has(id)) finish(id, route, n, exit.value)
        })
        return joined
      })

    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const bucket of buckets) forget(bucket)
        for (const [id, route] of routes) end(id, route)
      })
    )
    yield* repeatInBackground("1 second", Effect.sync(endExpired), "Routes could not be ended")

    return {
      /**
       * Opens a route for what `plan` makes, with its first attempt; fails with `ServiceUnavailable` if too many are open.
       * `ifUnread` is told what to do if the client leaves without the answer.
       */
      open: <E>(plan: Effect.Effect<PlannedRequest, E>, ifUnread: (giveUp: () => void) => void = () => {}) =>
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
            const admitted = admit(planned.request.account_id, "route", weightOf(planned), revoking(id, route))
            return Effect.flatMap(admitted, (holding) => {
              route.holding = holding
              route.until = monotonicMillis(clock) + longestRoute
              routes.set(id, route)
              ifUnread(givingUp(id, route))
              const first: Effect.Effect<RouteAnswer, PoolsUnavailable | ServiceUnavailable> =
                route.walk === undefined ? Effect.fail(new ServiceUnavailable()) : openNext(route)
              const answer = Effect.onError(Effect.interruptible(first), () => Effect.sync(() => end(id, route)))
              return Effect.map(answer, ({ next, retry_at }) => {
                if (route.walk === undefined) end(id, route)
                return { id, expires_at, planned, next, retry_at }
              })
            })
          })
        }).pipe(Effect.uninterruptible),

      /**
       * Notes what came of the open attempt, and opens the next one unless the route is to end with it. The last report may
       * be repeated: the first counts.
       */
      report: (
        id: string,
        n: number,
        outcome: Outcome,
        goesOn = true
      ): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> =>
        Effect.suspend((): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> => {
          endExpired()
          const route = routes.get(id)
          if (route === undefined) {
            const kept = lastAnswerOf(id)
            return kept?.n === n ? kept.answer : Effect.fail(new NotFound())
          }
          const { last, open, walk } = route
          if (last?.n === n) {
            if (!goesOn && walk !== undefined) return finish(id, route, n, { ...over, outcome: last.outcome })
            return last.hasFailed ? answered(id, route, n, last.outcome) : last.answer
          }
          if (walk === undefined) return Effect.fail(new NotFound())
          if (open === undefined || n !== route.opened) return Effect.fail(new AttemptNotOpen())
          const isLast = walk.ended(open, outcome) || !goesOn
          close(route, outcome)
          return isLast ? finish(id, route, n, { ...over, outcome }) : answered(id, route, n, outcome)
        }),

      /** Ends a route whose client has left. */
      abandon: (id: string): Effect.Effect<void, NotFound> =>
        Effect.suspend(() => {
          endExpired()
          const route = routes.get(id)
          if (route?.walk === undefined) return Effect.fail(new NotFound())
          end(id, route)
          return Effect.void
        })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
