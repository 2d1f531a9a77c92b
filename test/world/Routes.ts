import { Effect, Exit } from "effect"
import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import { OpenRoutes, type RouteAnswer } from "../../src/gateway/OpenRoutes.ts"
import type { Lease } from "../../src/service/routing/Lease.ts"
import type { PlannedRequest } from "../../src/service/routing/PlannedRequest.ts"
import type { Router } from "../../src/service/routing/Router.ts"
import { broken, isAway, type Moment, tagOf } from "./Broken.ts"
import type { DeedOf } from "./History.ts"
import type { Act, Instance } from "./Instance.ts"
import type { Plans } from "./Plans.ts"
import type { Deeds, Scene } from "./Scene.ts"
import { tenantAt } from "./Tenants.ts"

const second = 1000
const minute = 60 * second

/** A route as its gateway knows it. */
class Route {
  readonly instance: Instance
  readonly life: number
  readonly id: string
  readonly planned: PlannedRequest
  readonly apiKey: string | undefined
  /** Has the service hear that the answer which opened the route was lost. */
  readonly lose: () => void
  /** It ends between these. */
  readonly until: number
  readonly outlives: number
  opened = 0
  /** The answers to its reports, by the number of the attempt. */
  readonly answers: Array<{ readonly n: number; readonly answer: string }> = []
  readonly tried: Array<{ readonly n: number; readonly name: string; readonly provider: string }> = []
  /** What was reported, by the number of the attempt. */
  readonly outcomes = new Map<number, Outcome["_tag"]>()
  readonly leases: Array<Lease> = []
  isOver = false
  abandonedAt = Infinity
  /** Whether somebody abandons it, or may have. */
  isAbandoned = false
  /** The report that ended it, when that was, and when its answer came, in tasks. */
  ended: { readonly n: number; readonly from: number; readonly until: number; readonly ran: number } | undefined
  /** Whether somebody has reported what is to end it. */
  isEnding = false
  /** Whether somebody left before an answer to a report: what became of it is not known. */
  hasBlurred = false
  /** When each attempt was first reported, by its number: a repeated report gets the lease that the first one opened. */
  readonly reportedFrom = new Map<number, Moment>()
  /** Reports that have begun, and those whose answer nobody got yet. */
  begun = 0
  reporting = 0

  constructor(given: Pick<Route, "apiKey" | "id" | "instance" | "lose" | "outlives" | "planned" | "until">) {
    this.instance = given.instance
    this.life = given.instance.life
    this.id = given.id
    this.planned = given.planned
    this.apiKey = given.apiKey
    this.lose = given.lose
    this.until = given.until
    this.outlives = given.outlives
  }

  get isBlurred() {
    return this.hasBlurred || this.reporting > 0
  }

  get isLive() {
    return this.instance.isAlive && this.instance.life === this.life
  }
}

type Report = Pick<DeedOf<"report">, "goesOn" | "outcome" | "twice">

/** The laws of routes: one open attempt, one answer to each report, and an end. */
export class Routes {
  readonly #scene: Scene
  readonly #plans: Plans
  readonly #routes: Array<Route> = []

  constructor(scene: Scene, plans: Plans) {
    this.#scene = scene
    this.#plans = plans
  }

  get #now() {
    return this.#scene.simulation.now
  }

  #routeAt(index: number, isWanted: (route: Route) => boolean = () => true) {
    const routes = this.#routes.filter((route) => route.isLive && isWanted(route))
    return routes.toReversed()[index % Math.max(1, routes.length)]
  }

  /** Each attempt is the next one, of a key that was not tried and a provider that is not down, for an API key that is not revoked. */
  #noteAttempt(route: Route, { next }: RouteAnswer, from: Moment) {
    if (next === undefined || next.n <= route.opened) return
    const { attempt, n } = next
    if (n !== route.opened + 1 && !route.isBlurred) broken(`a route opens attempt ${n} after ${route.opened}`)
    route.opened = n
    const { provider } = attempt.step
    const name = attempt.step._tag === "Own" ? attempt.step.credential_id : `${provider} shared`
    if (route.tried.some((one) => one.name === name)) broken(`a route tries ${name} twice`)
    const outcomes = route.tried.flatMap((one) => (one.provider === provider ? (route.outcomes.get(one.n) ?? []) : []))
    const isDown = outcomes.length > 1 && outcomes.slice(-2).every((outcome) => outcome === "UpstreamFailed")
    if (isDown && !route.isBlurred) broken(`a route tries ${provider}, which is down`)
    route.tried.push({ n, name, provider })
    const { lease } = attempt
    if (lease === undefined || lease.hasEnded) return
    route.leases.push(lease)
    const revoked = this.#scene.revoked.get(route.apiKey ?? "")
    if (revoked !== undefined && from.at >= revoked.at + second) broken("a route goes on whose API key was revoked")
    const row = attempt.step._tag === "Own" ? attempt.step.row : undefined
    this.#plans.checkLease(route.instance, lease, row, from, route.planned)
  }

  #report(act: Act, route: Route, n: number, { goesOn, outcome, twice }: Report) {
    if (!route.isLive) return Effect.void
    const { begun, isBlurred: wasBlurred, isOver: wasOver, opened } = route
    if (!goesOn) route.isEnding = true
    const one = Effect.gen({ self: this }, function* () {
      const { report } = yield* OpenRoutes
      route.begun += 1
      route.reporting += 1
      if (!route.reportedFrom.has(n)) route.reportedFrom.set(n, this.#scene.now)
      return yield* Effect.onExit(report(route.id, n, outcome, goesOn), (exit) =>
        Effect.sync(() => {
          if (Exit.hasInterrupts(exit)) route.hasBlurred = true
        })
      )
    })
    /** Whether nobody else has reported meanwhile. */
    const isAlone = () => !twice && !wasBlurred && !route.isBlurred && route.begun === begun + 1
    const asking = this.#scene.ask(route.instance, act, one, (exit, from) => {
      route.reporting -= 1
      // The report may have reached the instance after a restart.
      if (!route.isLive) return
      if (Exit.isFailure(exit)) {
        // It may have counted.
        if (isAway(exit.cause)) route.hasBlurred = true
        else {
          const tag = String(tagOf(exit.cause))
          const isRepeatable = n === opened && !route.reportedFrom.has(n + 1)
          if (isRepeatable && tag === "AttemptNotOpen") broken(`a route refuses a repeated report of attempt ${n}`)
          this.#checkRefusal(route, n, tag, from, isAlone() && opened === route.opened && !wasOver)
        }
        return
      }
      const { next, outcome: told } = exit.value
      const { ended } = route
      const first = route.reportedFrom.get(n) ?? from
      if (ended !== undefined && from.at >= ended.until + minute + second) {
        broken("a route keeps its last answer for more than a minute")
      }
      if (from.at >= route.outlives && !wasOver && !route.isBlurred) broken("a route outlives its ten minutes")
      const answer = next === undefined ? `over ${told._tag}` : `${next.n} ${told._tag} ${next.attempt.step._tag}`
      const before = route.answers.find((one) => one.n === n)
      if (before !== undefined && before.answer !== answer && !route.isEnding && !route.isOver && !route.isBlurred) {
        broken(`a route answers its report ${n} with ${answer}, and before with ${before.answer}`)
      }
      if (n < 1 || (isAlone() && n > opened)) broken(`a route takes a report of attempt ${n}`)
      if (before === undefined) route.answers.push({ n, answer })
      if (next !== undefined && route.abandonedAt < this.#now) broken("a route that was abandoned opens an attempt")
      if (!goesOn && next !== undefined) broken("a report that was to end its route goes on")
      if (next === undefined && !route.isOver) {
        route.isOver = true
        route.ended = { n, from: first.at, until: this.#now, ran: this.#scene.simulation.ran }
      }
      route.outcomes.set(n, told._tag)
      this.#noteAttempt(route, exit.value, first)
    })
    return twice ? Effect.all([asking, asking], { concurrency: 2, discard: true }) : asking
  }

  /** Of a report that was refused: the route may have forgotten neither its last answer nor its attempt. */
  #checkRefusal(route: Route, n: number, tag: string, { ran }: Moment, isAlone: boolean) {
    const { ended } = route
    // A route that expires while it is answered is over by that, not by its report.
    const isKept = ended?.n === n && ended.until < route.until && this.#now < ended.from + minute
    // A report that was refused before its attempt was open may be answered after another one that was taken.
    const isEarly = tag === "AttemptNotOpen" && ended !== undefined && ran <= ended.ran
    if (isKept && !isEarly && !route.isAbandoned) broken(`a route has forgotten its last answer: ${tag}`)
    if (!isAlone || route.isOver || this.#now >= route.until) return
    const known = route.answers.find((one) => one.n === n)
    const isLast = route.answers.every((one) => one.n <= n)
    if (known !== undefined && isLast && !known.answer.startsWith("over")) {
      broken(`a route has forgotten its answer to ${n}: ${tag}`)
    }
    if (known === undefined && n === route.opened) broken(`a route refuses the report of its attempt ${n}: ${tag}`)
  }

  /** Of each route one lease at most is open, and none once it is over. */
  check() {
    for (const route of this.#routes) {
      if (!route.isLive) continue
      const isOver = route.isOver || this.#now > route.outlives + 1500
      if (route.leases.filter((lease) => !lease.hasEnded).length > (isOver ? 0 : 1)) {
        broken(`a route that is ${isOver ? "over" : "open"} holds too many leases`)
      }
    }
  }

  readonly deeds: Deeds<"open" | "report" | "abandon" | "lose" | "report late" | "ask again"> = {
    open: (deed, act, instance) => {
      const { apiKey, tenant } = deed
      let lose = () => {}
      const asked = Effect.gen({ self: this }, function* () {
        const { open } = yield* OpenRoutes
        const planning = Effect.provideContext(this.#plans.planning(deed), yield* Effect.context<Router>())
        return yield* open(planning, (giveUp) => (lose = giveUp))
      })
      return this.#scene.ask(instance, act, asked, (exit, from) => {
        this.#plans.checkPlanned(deed, exit, from)
        if (Exit.isFailure(exit)) return
        this.#scene.counts.routes += 1
        const { id, next, planned } = exit.value
        const ends = { until: from.at + 10 * minute, outlives: this.#now + 10 * minute }
        const hash = apiKey === null ? undefined : String(tenantAt(tenant).apiKeys[apiKey])
        const route = new Route({ ...{ instance, id, planned, lose, apiKey: hash }, ...ends })
        route.isOver = next === undefined
        this.#routes.push(route)
        this.#noteAttempt(route, exit.value, from)
      })
    },

    report: ({ off, route: index, ...report }, act) => {
      const route = this.#routeAt(index)
      return route === undefined ? Effect.void : this.#report(act, route, route.opened + off, report)
    },

    abandon: ({ route: index }, act) => {
      const route = this.#routeAt(index)
      if (route === undefined) return Effect.void
      const asked = OpenRoutes.use(({ abandon }) => {
        route.reporting += 1
        route.isAbandoned = true
        return abandon(route.id)
      })
      return this.#scene.ask(route.instance, act, asked, (exit, from) => {
        route.reporting -= 1
        if (Exit.isFailure(exit)) return
        if (from.at >= route.outlives) broken("a route outlives its ten minutes")
        route.isOver = true
        route.abandonedAt = this.#now
      })
    },

    lose: ({ route: index }) =>
      Effect.sync(() => {
        const route = this.#routeAt(index)
        if (route === undefined) return
        route.lose()
        // Whoever reports has got the answer that opened the route.
        if (route.begun === 0) {
          route.isOver = true
          route.isAbandoned = true
          route.abandonedAt = Math.min(route.abandonedAt, this.#now)
        } else if (route.answers.length === 0) route.hasBlurred = true
      }),

    "report late": ({ after, route: index }, act) => {
      const route = this.#routeAt(index)
      if (route === undefined) return Effect.void
      const report = { goesOn: true, twice: false, outcome: { _tag: "UpstreamFailed" } } as const
      return Effect.andThen(
        Effect.sleep(Math.max(0, route.until - 10 * minute + after - this.#now)),
        Effect.suspend(() => this.#report(act, route, route.opened, report))
      )
    },

    "ask again": ({ after, route: index }, act) => {
      const route = this.#routeAt(index, ({ ended }) => ended !== undefined)
      if (route?.ended === undefined) return Effect.void
      const { n, until } = route.ended
      const report = { goesOn: true, twice: false, outcome: { _tag: "Succeeded" } } as const
      return Effect.andThen(
        Effect.sleep(Math.max(0, until + after - this.#now)),
        Effect.suspend(() => this.#report(act, route, n, report))
      )
    }
  }
}
