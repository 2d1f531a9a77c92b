import { Duration, Effect, Exit } from "effect"
import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import type { Past } from "../../src/domain/routing/Past.ts"
import { Attempts as Service, type Report } from "../../src/service/routing/Attempts.ts"
import { broken, isAway, tagOf } from "./Broken.ts"
import type { DeedOf } from "./History.ts"
import type { Act, Instance } from "./Instance.ts"
import { type Plans, routed } from "./Plans.ts"
import type { Deeds, Scene } from "./Scene.ts"

const second = 1000
const hour = 3600 * second

/** An attempt as its gateway knows it. */
export interface Handed {
  readonly deed: Omit<DeedOf<"ask">, "do">
  readonly text: string
  readonly at: number
  /** How long the upstream takes, if the gateway tells; the same each time that it reports. */
  readonly took: number | null
  /** The request and the credential. */
  readonly name: string
  /** Whether the instance that handed it out knew the database's time. */
  readonly isInTime: boolean
  readonly past: Past
  readonly step: Past[number]
  outcome: Outcome | undefined
  /** Whether its gateway has begun to report it. */
  isReported: boolean
  /** When each life of an instance first heard of its result, if the gateway does not tell how long it took. */
  readonly heard: Map<string, number>
}

/** The result of an attempt as a gateway reports it. */
const reportOf = ({ outcome = { _tag: "Abandoned" }, text: attempt, took }: Handed): Report => {
  const took_ms = took === null ? {} : { took_ms: took }
  if (outcome._tag === "Abandoned") return { attempt, ...took_ms }
  if (outcome._tag !== "RateLimited") return { attempt, status: statuses[outcome._tag], ...took_ms }
  const { retry_after } = outcome
  const header = retry_after === null ? null : Number.isNaN(retry_after) ? "soon" : String(retry_after / second)
  return { attempt, status: 429, retry_after: header, ...took_ms }
}

/** The second bare 403 of a provider in a request says nothing about its key. */
const expectedOf = ({ outcome, past, step }: Handed): Outcome["_tag"] | undefined =>
  outcome?._tag === "Forbidden" && past.some((one) => one.provider === step.provider && one.result === "Forbidden")
    ? "NotServed"
    : outcome?._tag

const statuses = {
  ...{
    Succeeded: 200,
    QuotaExhausted: 402,
    Rejected: 401,
    Forbidden: 403,
    UpstreamFailed: 500,
    NotServed: 404,
    RequestRefused: 400
  }
} as const

/** The laws of attempts over the socket: whichever instance hears of a result, in whatever order and however often. */
export class Attempts {
  readonly #scene: Scene
  readonly #plans: Plans

  constructor(scene: Scene, plans: Plans) {
    this.#scene = scene
    this.#plans = plans
  }

  get #now() {
    return this.#scene.simulation.now
  }

  #handedAt(index: number): Handed | undefined {
    const { handed } = this.#plans
    return handed.toReversed()[index % Math.max(1, handed.length)]
  }

  #hand(
    instance: Instance,
    deed: Handed["deed"],
    answer: Effect.Success<ReturnType<Service["Service"]["next"]>>,
    past: Past
  ) {
    const { next, text } = answer
    if (next?.attempt === undefined || text === undefined) return
    const { lease, step } = next.attempt
    if (lease?.hasEnded === false) broken("a key outlives the answer that holds it")
    this.#scene.counts.attempts += 1
    const credential_id = step._tag === "Own" ? step.credential_id : null
    this.#plans.handed.push({
      ...{
        isInTime: instance.isSynchronized,
        deed,
        text,
        past,
        at: this.#now,
        outcome: undefined,
        isReported: false,
        heard: new Map()
      },
      took: this.#scene.random.pick([null, 0, 20, 3 * second, 70 * second]),
      name: `${lease?.terms.request_id} ${credential_id}`,
      step: { provider: step.provider, credential_id, result: "Abandoned" }
    })
  }

  /** A text is taken for an hour, on every instance, and never later. A fault may keep the database's time from an act. */
  #checkTaken(instance: Instance, act: Act, handed: Handed, exit: Exit.Exit<unknown, unknown>, asked: number) {
    if (!instance.isSynchronized || !handed.isInTime || act.hasMet) return
    const isUnknown = Exit.isFailure(exit) && tagOf(exit.cause) === "UnknownAttempt"
    if (isUnknown && this.#now < handed.at + hour - second) broken("a text is refused that is valid")
    if (Exit.isSuccess(exit) && asked > handed.at + hour + second) broken("a text is taken that has expired")
  }

  #goOn(act: Act, instance: Instance, handed: Handed, { foreign }: Pick<DeedOf<"go on">, "foreign">) {
    const { deed, step } = handed
    const tenant = foreign ? 1 - deed.tenant : deed.tenant
    const request = routed({ ...deed, tenant, apiKey: foreign ? 0 : deed.apiKey })
    const after = reportOf(handed)
    const freshness = Duration.millis(deed.freshness)
    const asked = Service.use(({ next }) => Effect.scoped(next(request, { after, freshness })))
    return this.#scene.ask(instance, act, asked, (exit, from) => {
      if (!foreign || Exit.isSuccess(exit)) this.#checkTaken(instance, act, handed, exit, from.at)
      if (Exit.isFailure(exit)) {
        if (!isAway(exit.cause) && tagOf(exit.cause) !== "UnknownAttempt")
          this.#plans.checkPlanned({ ...deed, tenant, apiKey: foreign ? 0 : deed.apiKey }, exit, from)
        return
      }
      const { next, outcome } = exit.value
      const result = outcome?._tag ?? "Abandoned"
      if (result !== expectedOf(handed)) broken(`a report of ${handed.outcome?._tag} is taken as ${result}`)
      const isFinal = ["Succeeded", "RequestRefused", "Abandoned"].includes(result)
      if (isFinal && next !== undefined) broken("a request goes on after its end")
      if (isFinal) return
      if (next === undefined) return broken("a request ends with a result after which others follow")
      if (foreign) return broken("another account's API key goes on with a request")
      this.#hand(instance, deed, exit.value, [...handed.past, { ...step, result }])
    })
  }

  readonly deeds: Deeds<"ask" | "go on" | "settle"> = {
    ask: (deed, act, instance) => {
      const freshness = Duration.millis(deed.freshness)
      const asked = Service.use(({ next }) => Effect.scoped(next(routed(deed), { freshness })))
      return this.#scene.ask(instance, act, asked, (exit, from) => {
        this.#plans.checkPlanned(deed, exit, from)
        if (Exit.isSuccess(exit)) this.#hand(instance, deed, exit.value, [])
      })
    },

    "go on": ({ attempt, outcome, ...more }, act, instance) => {
      const handed = this.#handedAt(attempt)
      if (handed === undefined) return Effect.void
      handed.outcome ??= outcome
      handed.isReported = true
      const going = this.#goOn(act, instance, handed, more)
      return more.twice ? Effect.all([going, going], { concurrency: 2, discard: true }) : going
    },

    settle: ({ attempt, outcome }, act, instance) => {
      const handed = this.#handedAt(attempt)
      if (handed === undefined) return Effect.void
      handed.outcome ??= outcome
      handed.isReported = true
      const asked = Service.use(({ report }) => report(reportOf(handed)))
      return this.#scene.ask(instance, act, asked, (exit, from) =>
        this.#checkTaken(instance, act, handed, exit, from.at)
      )
    }
  }
}
