import { randomUUID } from "node:crypto"
import { Clock, Context, Data, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { monotonicMillis } from "../domain/routing/Moment.ts"
import type { Outcome } from "../domain/routing/Outcome.ts"
import { repeatInBackground } from "../service/repeatInBackground.ts"
import type { Planned } from "../service/routing/Planned.ts"
import { Router } from "../service/routing/Router.ts"
import type { PoolsUnavailable } from "../service/routing/RouterErrors.ts"
import type { OpenAttempt, Walk } from "../service/routing/Walk.ts"

/** How long a route may take, in milliseconds. Then its open attempt is abandoned. */
const longestRoute = 10 * 60 * 1000

/** How many routes may be open at a time, and of how many ended ones the last answer is kept. */
const maxRoutes = 10_000

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

type Answering<A extends RouteAnswer> = Fiber.Fiber<A, PoolsUnavailable>

interface Route {
  readonly walk: Walk
  /** When it expires, by the monotonic clock. */
  readonly until: number
  /** How many attempts were opened. */
  opened: number
  open: (OpenAttempt & { readonly scope: Scope.Closeable }) | undefined
  /** The last report, and what answers it and every repetition of it. */
  last: { readonly n: number; readonly outcome: Outcome; answering: Answering<ReportAnswer> } | undefined
  hasEnded: boolean
}

const newRoute = (walk: Walk, until: number): Route => ({
  walk,
  until,
  opened: 0,
  open: undefined,
  last: undefined,
  hasEnded: false
})

const monotonic = Effect.clockWith((clock) => Effect.sync(() => monotonicMillis(clock)))

/**
 * The walks that gateways drive over HTTP, one request an attempt. Invariant: of each route at most one attempt is open,
 * every attempt ends once, by its report or as abandoned, and the answer to a report is made once.
 */
export class OpenRoutes extends Context.Service<OpenRoutes>()("byok/OpenRoutes", {
  make: Effect.gen(function* () {
    const { report, walk } = yield* Router
    const routes = new Map<string, Route>()
    const ended = new Map<string, Route>()
    let opening = 0

    const close = (route: Route, outcome: Outcome) =>
      Effect.suspend(() => {
        const { open } = route
        route.open = undefined
        if (open === undefined) return Effect.void
        const reported = open.lease === undefined ? Effect.void : report(open.lease, outcome)
        return Effect.andThen(reported, Scope.close(open.scope, Exit.void))
      })

    /** Ends a route, and abandons its attempt if one is open. */
    const end = (id: string, route: Route) =>
      Effect.suspend(() => {
        route.hasEnded = true
        routes.delete(id)
        return close(route, { _tag: "Abandoned" })
      })

    /** Ends a route by its last report, whose answer is kept for a while. */
    const finish = (id: string, route: Route) =>
      Effect.suspend(() => {
        ended.set(id, route)
        const [oldest] = ended.keys()
        if (ended.size > maxRoutes && oldest !== undefined) ended.delete(oldest)
        return end(id, route)
      })

    const endExpired = Effect.flatMap(monotonic, (now) => {
      const expired: Array<readonly [string, Route]> = []
      for (const entry of routes) {
        if (now < entry[1].until) break
        expired.push(entry)
      }
      return Effect.forEach(expired, ([id, route]) => end(id, route), { discard: true })
    })

    /** Opens the next attempt, unless the route ends meanwhile. */
    const openNext = (id: string, route: Route): Effect.Effect<RouteAnswer, PoolsUnavailable> =>
      Effect.flatMap(Scope.make(), (scope) =>
        Effect.flatMap(
          Effect.onExit(Scope.provide(route.walk.next, scope), (exit) =>
            Exit.isSuccess(exit) && exit.value !== undefined && !route.hasEnded
              ? Effect.void
              : Scope.close(scope, Exit.void)
          ),
          (attempt): Effect.Effect<RouteAnswer> => {
            if (route.hasEnded) return Effect.succeed({ next: undefined, retry_at: null })
            if (attempt !== undefined) {
              route.open = { ...attempt, scope }
              route.opened += 1
              return Effect.succeed({ next: { n: route.opened, attempt }, retry_at: null })
            }
            return Effect.map(Effect.andThen(finish(id, route), route.walk.exhausted), ({ retry_at }) => ({
              next: undefined,
              retry_at
            }))
          }
        )
      )

    /** Answers a report, in a fiber of its own: whoever reports may leave, and asks again for the same answer. */
    const answered = (
      route: Route,
      n: number,
      outcome: Outcome,
      answer: Effect.Effect<RouteAnswer, PoolsUnavailable>
    ) =>
      Effect.withFiber((fiber) => {
        const answering = Effect.runForkWith(fiber.context)(Effect.map(answer, (made) => ({ ...made, outcome })))
        route.last = { n, outcome, answering }
        return Fiber.join(answering)
      })

    const answer = (id: string, route: Route, isLast: boolean) =>
      isLast ? Effect.as(finish(id, route), { next: undefined, retry_at: null }) : openNext(id, route)

    yield* Effect.addFinalizer(() => Effect.forEach(Array.from(routes), ([id, route]) => end(id, route)))
    yield* repeatInBackground("1 second", endExpired, "Routes could not be ended")

    return {
      /** Opens a route for what `plan` makes, with its first attempt; fails with `ServiceUnavailable` if too many are open. */
      open: <E>(plan: Effect.Effect<Planned, E>) =>
        Effect.gen(function* () {
          yield* endExpired
          if (routes.size + opening >= maxRoutes) return yield* new ServiceUnavailable()
          let isCounted = (opening += 1) > 0
          const uncount = Effect.sync(() => {
            if (isCounted) opening -= 1
            isCounted = false
          })
          return yield* Effect.ensuring(
            Effect.gen(function* () {
              const planned = yield* plan
              const until = (yield* monotonic) + longestRoute
              const expires_at = (yield* Clock.currentTimeMillis) + longestRoute
              const id = randomUUID()
              const route = newRoute(walk(planned), until)
              routes.set(id, route)
              yield* uncount
              const answer = yield* Effect.onError(openNext(id, route), () => end(id, route))
              return { id, expires_at, planned, ...answer, retry_at: answer.retry_at ?? planned.retry_at }
            }),
            uncount
          )
        }),

      /** Notes what came of the open attempt, and opens the next one. The last report may be repeated: the first counts. */
      report: (
        id: string,
        n: number,
        outcome: Outcome
      ): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> =>
        Effect.andThen(
          endExpired,
          Effect.suspend((): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> => {
            const route = routes.get(id) ?? ended.get(id)
            if (route === undefined) return new NotFound()
            const { last, open } = route
            if (last?.n === n) {
              const exit = last.answering.pollUnsafe()
              const isMade = exit === undefined || Exit.isSuccess(exit)
              return isMade ? Fiber.join(last.answering) : answered(route, n, last.outcome, openNext(id, route))
            }
            if (route.hasEnded) return new NotFound()
            if (open === undefined || n !== route.opened) return new AttemptNotOpen()
            const isLast = route.walk.ended(open, outcome)
            return answered(route, n, outcome, Effect.andThen(close(route, outcome), answer(id, route, isLast)))
          })
        ),

      /** Ends a route whose client has left. */
      abandon: (id: string) =>
        Effect.flatMap(endExpired, () => {
          const route = routes.get(id)
          return route === undefined ? Effect.fail(new NotFound()) : end(id, route)
        })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
