import { randomUUID } from "node:crypto"
import { Clock, Context, Data, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { monotonicMillis } from "../domain/routing/Moment.ts"
import type { Outcome } from "../domain/routing/Outcome.ts"
import { type Holding, MemoryBudget } from "../port/MemoryBudget.ts"
import { repeatInBackground } from "../service/repeatInBackground.ts"
import type { PlannedRequest } from "../service/routing/PlannedRequest.ts"
import { Router } from "../service/routing/Router.ts"
import type { PoolsUnavailable } from "../service/routing/RouterErrors.ts"
import type { OpenAttempt, Walk } from "../service/routing/Walk.ts"

/** How long a route may take, in milliseconds. Then its open attempt is abandoned. */
const longestRoute = 10 * 60 * 1000

/** For how long the last answer of an ended route may be asked for again, in milliseconds. */
const answerKept = 60 * 1000

/** About how many bytes a route takes, each step of its plan, and its last answer once it has ended. */
const bytesOf = { route: 6 * 1024, step: 320, answer: 1024 }

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

/** What is kept of a route when it has ended. */
interface EndedRoute {
  readonly holding: Holding
  /** When it expires, by the monotonic clock; once it has ended, when its last answer does. */
  until: number
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

interface Route extends EndedRoute {
  readonly walk: Walk
  /** How many attempts were opened. */
  opened: number
  open: (OpenAttempt & { readonly scope: Scope.Closeable }) | undefined
  hasEnded: boolean
}

const newRoute = (walk: Walk, holding: Holding, until: number): Route => ({
  walk,
  holding,
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
    const { admit } = yield* MemoryBudget
    const fork = Effect.runForkWith(yield* Effect.context())
    const routes = new Map<string, Route>()
    const ended = new Map<string, EndedRoute>()

    const close = (route: Route, outcome: Outcome) =>
      Effect.suspend(() => {
        const { open } = route
        route.open = undefined
        if (open === undefined) return Effect.void
        const reported = open.lease === undefined ? Effect.void : report(open.lease, outcome)
        return Effect.andThen(reported, Scope.close(open.scope, Exit.void))
      })

    const stop = (id: string, route: Route) =>
      Effect.suspend(() => {
        route.hasEnded = true
        routes.delete(id)
        return close(route, { _tag: "Abandoned" })
      })

    /** Ends a route, and abandons its attempt if one is open. */
    const end = (id: string, route: Route) =>
      Effect.ensuring(
        stop(id, route),
        Effect.sync(() => route.holding.release())
      )

    /** Ends a route by its last report, whose answer is kept for a while. */
    const finish = (id: string, route: Route) =>
      Effect.flatMap(monotonic, (now) => {
        route.until = now + answerKept
        ended.set(id, route)
        return stop(id, route)
      })

    const forget = (id: string, { holding }: EndedRoute) => {
      ended.delete(id)
      holding.release()
    }

    /** Keeps a last answer. A function of its own, as what it leaves behind holds whatever the functions around it do. */
    const keep = (id: string, n: number, { holding, until }: EndedRoute, answer: ReportAnswer) => {
      const last = { n, outcome: answer.outcome, answer: Effect.succeed(answer), hasFailed: false }
      const kept = { holding, until, last }
      ended.set(id, kept)
      holding.shrink(bytesOf.answer)
      holding.spare(() => forget(id, kept))
    }

    const endExpired = Effect.flatMap(monotonic, (now) => {
      const expired: Array<readonly [string, Route]> = []
      for (const entry of routes) {
        if (now < entry[1].until) break
        expired.push(entry)
      }
      for (const [id, route] of ended) {
        if (now < route.until) break
        forget(id, route)
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

    /** Ends a route by a report, whether or not its sender waits. Nothing is waited for, so a fiber of its own is not needed. */
    const finished = (id: string, route: Route, n: number, outcome: Outcome, closing = close(route, outcome)) => {
      const answer = { next: undefined, retry_at: null, outcome }
      route.last = { n, outcome, answer: Effect.succeed(answer), hasFailed: false }
      const closed = Effect.andThen(closing, finish(id, route))
      return Effect.uninterruptible(
        Effect.map(closed, () => {
          if (ended.get(id) === route) keep(id, n, route, answer)
          return answer
        })
      )
    }

    /** Goes on after a report, in a fiber of its own: whoever reports may leave, and asks again for the same answer. */
    const answered = (
      id: string,
      route: Route,
      n: number,
      outcome: Outcome,
      answer: Effect.Effect<RouteAnswer, PoolsUnavailable>
    ) =>
      Effect.withFiber((fiber) => {
        const answering = Effect.runForkWith(fiber.context)(Effect.map(answer, (made) => ({ ...made, outcome })))
        route.last = { n, outcome, answer: Fiber.join(answering), hasFailed: false }
        answering.addObserver((exit) => {
          if (route.last?.n === n) route.last.hasFailed = Exit.isFailure(exit)
          if (Exit.isFailure(exit) || ended.get(id) !== route) return
          keep(id, n, route, exit.value)
        })
        return Fiber.join(answering)
      })

    yield* Effect.addFinalizer(() => {
      for (const [id, route] of ended) forget(id, route)
      return Effect.forEach(Array.from(routes), ([id, route]) => end(id, route))
    })
    yield* repeatInBackground("1 second", endExpired, "Routes could not be ended")

    return {
      /**
       * Opens a route for what `plan` makes, with its first attempt; fails with `ServiceUnavailable` if too many are open.
       * `ifUnread` is told what to do if the client leaves without the answer.
       */
      open: <E>(plan: Effect.Effect<PlannedRequest, E>, ifUnread: (giveUp: () => void) => void = () => {}) =>
        Effect.gen(function* () {
          yield* endExpired
          const planned = yield* plan
          const id = randomUUID()
          let isRevoked = false
          const revoke = () => {
            isRevoked = true
            const route = routes.get(id)
            if (route !== undefined) fork(end(id, route))
          }
          const opened = Effect.uninterruptibleMask((restore) =>
            Effect.gen(function* () {
              const bytes = bytesOf.route + bytesOf.step * planned.steps.length
              const holding = yield* admit(planned.request.account_id, "route", bytes, revoke)
              const until = (yield* monotonic) + longestRoute
              const expires_at = (yield* Clock.currentTimeMillis) + longestRoute
              // Why each key is used or not is for the answer alone.
              const route = newRoute(walk({ ...planned, providers: [] }), holding, until)
              routes.set(id, route)
              ifUnread(() => {
                if (route.last === undefined && !route.hasEnded) revoke()
              })
              const first = Effect.suspend((): Effect.Effect<RouteAnswer, PoolsUnavailable | ServiceUnavailable> =>
                isRevoked ? new ServiceUnavailable() : openNext(id, route)
              )
              const answer = yield* Effect.onError(restore(first), () => end(id, route))
              if (route.hasEnded) forget(id, route)
              return { id, expires_at, planned, ...answer, retry_at: answer.retry_at ?? planned.retry_at }
            })
          )
          return yield* opened
        }),

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
        Effect.andThen(
          endExpired,
          Effect.suspend((): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> => {
            const over = ended.get(id)
            if (over !== undefined) return over.last?.n === n ? over.last.answer : new NotFound()
            const route = routes.get(id)
            if (route === undefined) return new NotFound()
            const { last, open } = route
            if (last?.n === n) {
              if (!goesOn) return finished(id, route, n, last.outcome, Effect.void)
              return last.hasFailed ? answered(id, route, n, last.outcome, openNext(id, route)) : last.answer
            }
            if (open === undefined || n !== route.opened) return new AttemptNotOpen()
            if (route.walk.ended(open, outcome) || !goesOn) return finished(id, route, n, outcome)
            return answered(id, route, n, outcome, Effect.andThen(close(route, outcome), openNext(id, route)))
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
