import { randomUUID } from "node:crypto"
import { Clock, Context, Data, Effect, Exit, Fiber, Layer } from "effect"
import { NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { monotonicMillis } from "../domain/routing/Moment.ts"
import type { Outcome } from "../domain/routing/Outcome.ts"
import * as AtHand from "../port/AtHand.ts"
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
  open: OpenAttempt | undefined
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

const over: RouteAnswer = { next: undefined, retry_at: null }

/**
 * The walks that gateways drive over HTTP, one request an attempt. Its functions act when they are called. Invariant: of each
 * route at most one attempt is open, every attempt ends once, by its report or as abandoned, and the answer to a report is made
 * once.
 */
export class OpenRoutes extends Context.Service<OpenRoutes>()("byok/OpenRoutes", {
  make: Effect.gen(function* () {
    const { walk } = yield* Router
    const { admit } = yield* MemoryBudget
    const clock = yield* Clock.Clock
    const routes = new Map<string, Route>()
    const ended = new Map<string, EndedRoute>()
    /** No route expires and no answer is forgotten before. */
    let earliest = Number.NEGATIVE_INFINITY

    const close = (route: Route, outcome: Outcome) => {
      route.open = undefined
      route.walk.close(outcome)
    }

    const stop = (id: string, route: Route) => {
      route.hasEnded = true
      routes.delete(id)
      close(route, { _tag: "Abandoned" })
    }

    /** Ends a route, and abandons its attempt if one is open. */
    const end = (id: string, route: Route) => {
      stop(id, route)
      route.holding.release()
    }

    /** Ends a route by its last report, whose answer is kept for a while. */
    const finish = (id: string, route: Route) => {
      route.until = monotonicMillis(clock) + answerKept
      ended.set(id, route)
      stop(id, route)
    }

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

    /** In both maps the first is the first to expire. */
    const endExpired = () => {
      const now = monotonicMillis(clock)
      if (now < earliest) return
      earliest = now + answerKept
      for (const [id, route] of routes) {
        earliest = Math.min(earliest, route.until)
        if (now < route.until) break
        end(id, route)
      }
      for (const [id, route] of ended) {
        earliest = Math.min(earliest, route.until)
        if (now < route.until) break
        forget(id, route)
      }
    }

    /** Opens the next attempt, unless the route ends meanwhile. */
    const openNext = (id: string, route: Route): Effect.Effect<RouteAnswer, PoolsUnavailable> =>
      AtHand.flatMap(
        AtHand.onExit(route.walk.next(), (exit) => {
          if (Exit.isFailure(exit) || route.hasEnded) close(route, { _tag: "Abandoned" })
        }),
        (attempt): Effect.Effect<RouteAnswer> => {
          if (route.hasEnded) return Effect.succeed(over)
          if (attempt !== undefined) {
            route.open = attempt
            route.opened += 1
            return Effect.succeed({ next: { n: route.opened, attempt }, retry_at: null })
          }
          finish(id, route)
          return Effect.map(route.walk.exhausted, ({ retry_at }) => ({ next: undefined, retry_at }))
        }
      )

    /** Ends a route by a report. */
    const finished = (id: string, route: Route, n: number, outcome: Outcome) => {
      const answer = { ...over, outcome }
      finish(id, route)
      keep(id, n, route, answer)
      return Effect.succeed(answer)
    }

    /** Goes on after a report, in a fiber of its own: whoever reports may leave, and asks again for the same answer. */
    const answered = (id: string, route: Route, n: number, outcome: Outcome) => {
      const answer = AtHand.map(openNext(id, route), (made) => ({ ...made, outcome }))
      const settled = (exit: Exit.Exit<ReportAnswer, PoolsUnavailable>) => {
        if (route.last?.n === n) route.last.hasFailed = Exit.isFailure(exit)
        if (Exit.isSuccess(exit) && ended.get(id) === route) keep(id, n, route, exit.value)
      }
      const exit = AtHand.exitOf(answer)
      if (exit !== undefined) {
        route.last = { n, outcome, answer: exit, hasFailed: false }
        settled(exit)
        return exit
      }
      return Effect.withFiber((fiber) => {
        const answering = Effect.runForkWith(fiber.context)(answer)
        route.last = { n, outcome, answer: Fiber.join(answering), hasFailed: false }
        answering.addObserver(settled)
        return Fiber.join(answering)
      })
    }

    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const [id, route] of ended) forget(id, route)
        for (const [id, route] of routes) end(id, route)
      })
    )
    yield* repeatInBackground("1 second", Effect.sync(endExpired), "Routes could not be ended")

    return {
      /**
       * Opens a route for what `plan` makes, with its first attempt; fails with `ServiceUnavailable` if too many are open.
       * `ifUnread` is told what to do if the client leaves without the answer.
       */
      open: <E>(plan: Effect.Effect<PlannedRequest, E>, ifUnread: (giveUp: () => void) => void = () => {}) => {
        endExpired()
        const opened = AtHand.flatMap(AtHand.interruptible(plan), (planned) => {
          const id = randomUUID()
          let isRevoked = false
          const revoke = () => {
            isRevoked = true
            const route = routes.get(id)
            if (route !== undefined) end(id, route)
          }
          const bytes = bytesOf.route + bytesOf.step * planned.steps.length
          return AtHand.flatMap(admit(planned.request.account_id, "route", bytes, revoke), (holding) => {
            // Why each key is used or not is for the answer alone.
            const route = newRoute(walk({ ...planned, providers: [] }), holding, monotonicMillis(clock) + longestRoute)
            const expires_at = clock.currentTimeMillisUnsafe() + longestRoute
            routes.set(id, route)
            ifUnread(() => {
              if (route.last === undefined && !route.hasEnded) revoke()
            })
            const first: Effect.Effect<RouteAnswer, PoolsUnavailable | ServiceUnavailable> = isRevoked
              ? Effect.fail(new ServiceUnavailable())
              : openNext(id, route)
            const answer = AtHand.onExit(AtHand.interruptible(first), (exit) => {
              if (Exit.isFailure(exit)) end(id, route)
            })
            return AtHand.map(answer, ({ next, retry_at }) => {
              if (route.hasEnded) forget(id, route)
              return { id, expires_at, planned, next, retry_at: retry_at ?? planned.retry_at }
            })
          })
        })
        return AtHand.uninterruptible(opened)
      },

      /**
       * Notes what came of the open attempt, and opens the next one unless the route is to end with it. The last report may
       * be repeated: the first counts.
       */
      report: (
        id: string,
        n: number,
        outcome: Outcome,
        goesOn = true
      ): Effect.Effect<ReportAnswer, NotFound | AttemptNotOpen | PoolsUnavailable> => {
        endExpired()
        const over = ended.get(id)
        if (over !== undefined) return over.last?.n === n ? over.last.answer : Effect.fail(new NotFound())
        const route = routes.get(id)
        if (route === undefined) return Effect.fail(new NotFound())
        const { last, open } = route
        if (last?.n === n) {
          if (!goesOn) return finished(id, route, n, last.outcome)
          return last.hasFailed ? answered(id, route, n, last.outcome) : last.answer
        }
        if (open === undefined || n !== route.opened) return Effect.fail(new AttemptNotOpen())
        const isLast = route.walk.ended(open, outcome) || !goesOn
        close(route, outcome)
        return isLast ? finished(id, route, n, outcome) : answered(id, route, n, outcome)
      },

      /** Ends a route whose client has left. */
      abandon: (id: string): Effect.Effect<void, NotFound> => {
        endExpired()
        const route = routes.get(id)
        if (route === undefined) return Effect.fail(new NotFound())
        end(id, route)
        return Effect.void
      }
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
