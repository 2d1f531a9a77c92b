import { Duration, Effect, Exit, Result } from "effect"
import { isDeepStrictEqual } from "node:util"
import type { CredentialId } from "../../src/domain/Identifiers.ts"
import { parseCloudKey } from "../../src/domain/KeyMaterial.ts"
import { signsTokens } from "../../src/domain/Provider.ts"
import type { Past } from "../../src/domain/routing/Past.ts"
import type { Plan, Step } from "../../src/domain/routing/Plan.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import type { Lease } from "../../src/service/routing/Lease.ts"
import type { AttemptOptions, NextAttempt } from "../../src/service/routing/NextAttempt.ts"
import { Router } from "../../src/service/routing/Router.ts"
import type { ResolvedRequest, RouterRequest } from "../../src/service/routing/RouterRequest.ts"
import { mint } from "../../src/service/tokens/mint.ts"
import { inWords, planByTheBook } from "../domain/routing/planByTheBook.ts"
import type { Handed } from "./Attempts.ts"
import { broken, isAway, type Moment, tagOf } from "./Broken.ts"
import type { DeedOf } from "./History.ts"
import { clockError, type Instance, isSealedFor, poolNameOf, type Shared, textOf, type Told } from "./Instance.ts"
import { availabilityBy } from "./Reference.ts"
import type { Deeds, Scene } from "./Scene.ts"
import type { State } from "./StoreLog.ts"
import { epoch } from "./Simulation.ts"
import { idOf, requestAt, tenantAt } from "./Tenants.ts"

const second = 1000

/** For how long a token of Bedrock is handed out, of the time that it lives. */
const tokens = { kept: 720 * second, life: 900 * second }

type Planned = Plan & { readonly request: ResolvedRequest }

interface Leased {
  readonly instance: Instance
  readonly life: number
  readonly lease: Lease
  /** Whether its trial outlasts it. */
  readonly isKept: boolean
  readonly at: number
  /** When it was reported or ended, in tasks. */
  endedAt: number | undefined
}

/** Whether a row is what somebody sealed, without what a rewrap changes of it. */
const withoutKek = (row: string) => row.replace(/ kek-\d$/, "")

const isSealed = ({ credential, sealed }: State["rows"][number], account_id: Lease["terms"]["account_id"]) =>
  isSealedFor(sealed, contextOf({ ...credential, account_id }))

const scopesOf = ({ terms: { model } }: Lease) =>
  [
    ["whole", ""],
    ["model", model]
  ] as const

/** A request, of an account or of an API key. */
export const routed = ({ apiKey, first, model, tenant }: Omit<DeedOf<"ask">, "do" | "freshness">): RouterRequest => {
  const request = requestAt(tenant, model, first)
  const api_key_hash = apiKey === null ? undefined : tenantAt(tenant).apiKeys[apiKey]
  if (api_key_hash === undefined) return request
  const { account_id: _, ...rest } = request
  return { ...rest, api_key_hash }
}

/** The laws of plans, of the leases of their steps, and of reports. */
export class Plans {
  readonly #scene: Scene
  readonly #leased: Array<Leased> = []
  /** The attempts over the socket, oldest first. */
  readonly handed: Array<Handed> = []
  /** How many attempts are being made, and how often one was left before its answer came, by instance. */
  readonly #busy = new Map<Instance, number>()
  readonly #leftAt = new Map<Instance, number>()
  /** How many reports an instance has heard. */
  readonly #reports = new Map<Instance, number>()

  constructor(scene: Scene) {
    this.#scene = scene
  }

  /** A plan is refused for a reason that there is, and never made for an API key that was revoked before. */
  checkPlanned(
    { apiKey, tenant: t }: Pick<DeedOf<"ask">, "apiKey" | "tenant">,
    exit: Exit.Exit<unknown, unknown>,
    from: Moment
  ) {
    const tenant = tenantAt(t)
    const revoked = apiKey === null ? undefined : this.#scene.revoked.get(String(tenant.apiKeys[apiKey]))
    if (Exit.isSuccess(exit)) {
      if (revoked !== undefined && revoked.n <= from.n) broken("an API key plans that was revoked")
      return
    }
    if (isAway(exit.cause)) return
    const tag = tagOf(exit.cause)
    const isGone = this.#scene.log.lastState(poolNameOf(tenant, "azure"))?.isGone === true
    const isReason = tag === "UnknownApiKey" ? revoked !== undefined || isGone : tag === "UnknownWorkspace" && isGone
    if (!isReason) broken(`a plan was refused for no reason: ${String(tag)}`)
  }

  /** What an instance may have been told of a pool since a moment. */
  #toldSince(instance: Instance, pool: string, from: Moment, freshness: number) {
    return this.#scene.log
      .statesSince(pool, from, freshness)
      .filter(({ isGone }) => !isGone)
      .flatMap((state) =>
        instance.told
          .filter((told) => told.pool === pool && told.version === state.version && told.health === state.health)
          .map((told) => ({ state, told }))
      )
  }

  /** The rows of a state as the book takes them, with what an instance knows of their health. */
  #rowsOf(instance: Instance, plan: Planned, { state, told }: { state: State; told: Told }) {
    const { account_id, model } = plan.request
    // Whether a key could not be opened is remembered for a while.
    const hasFailed = instance.unopenedAt >= this.#scene.simulation.now - 15 * second
    const isUnopened = (id: CredentialId) =>
      plan.providers.some(({ credentials }) =>
        credentials.some(
          ({ credential_id, exclusions }) =>
            credential_id === id && exclusions.some((one) => one.reason === "seal" && one.seal === "unknown_key")
        )
      )
    return state.rows.map((row) => {
      const { id } = row.credential
      const seal = hasFailed && isUnopened(id) ? "unknown_key" : isSealed(row, account_id) ? "verified" : "altered"
      const leaked = state.leaked.has(id)
      const cooldowns = ["", model].flatMap((scope) =>
        this.#scene.health.knownSince(instance, Infinity, told, row, scope).slice(-1)
      )
      const availability = availabilityBy(instance, leaked, cooldowns)
      return { ...row, row: withoutKek(row.row), seal, leaked, stored: new Map(), availability } as const
    })
  }

  /** A plan is that of the book, on a state that its freshness allows. */
  #checkPlan(instance: Instance, plan: Planned, from: Moment, freshness: number) {
    this.#scene.counts.plans += 1
    const { request } = plan
    const steps = plan.steps.map((step) => (step._tag === "Own" ? { ...step, row: withoutKek(step.row) } : step))
    const words = inWords({ steps, providers: plan.providers, retry_at: null })
    const isUnavailable = plan.providers.some(
      ({ credentials, shared }) =>
        shared.removed.some(({ reason }) => reason === "seal") ||
        credentials.some(({ exclusions }) => exclusions.some(({ reason }) => reason === "seal"))
    )
    const retries = (retry_at: number | null) => (isUnavailable ? null : retry_at)
    const said = { ...words, retry_at: retries(plan.retry_at) }
    const [each = [], others = []] = request.targets.map(({ provider }) =>
      this.#toldSince(instance, poolNameOf(request, provider), from, freshness).map((one) =>
        this.#rowsOf(instance, plan, one)
      )
    )
    let last: unknown
    for (const one of each) {
      for (const other of others) {
        const book = planByTheBook({ request, rows: [...one, ...other], pick: 0 })
        last = { ...book, retry_at: retries(book.retry_at) }
        if (isDeepStrictEqual(last, said)) return
      }
    }
    const shown = (plan: unknown) => (JSON.stringify(plan) ?? "none").replaceAll(idOf(0).slice(0, 24), "")
    broken(`a plan of ${freshness} says ${shown(said)}, and not ${shown(last)}`)
  }

  #trialsOf(instance: Instance, lease: Lease): ReadonlyArray<string> {
    return scopesOf(lease).flatMap(([name, scope]) => {
      const { epoch, key_version, strikes } = this.#scene.health.of(instance, lease, name)
      return strikes === 0 ? [] : [[lease.terms.credential_id, key_version, epoch, strikes, scope].join()]
    })
  }

  /**
   * A lease is of a row that its freshness allows and holds the key of that row or a token of it, under what is known of
   * its key, and the only request that tries it.
   */
  #checkLease(
    instance: Instance,
    lease: Lease,
    row: string,
    from: Moment,
    {
      freshness,
      isKept,
      request
    }: { readonly freshness: number; readonly isKept: boolean; readonly request: ResolvedRequest }
  ) {
    const { counts, health, simulation } = this.#scene
    counts.leases += 1
    const { account_id, credential_id, key_version, provider, request_id } = lease.terms
    const pool = poolNameOf(request, provider)
    const fitting = this.#toldSince(instance, pool, from, freshness).flatMap(({ state, told }) => {
      const member = state.rows.find(({ credential }) => credential.id === credential_id)
      const fits =
        member?.key_version === key_version &&
        withoutKek(member.row) === withoutKek(row) &&
        !state.leaked.has(credential_id) &&
        isSealed(member, account_id)
      return fits ? [{ member, told }] : []
    })
    const [first] = fitting
    if (first === undefined)
      return broken(`a lease of ${credential_id}, which no state allows that is ${freshness} ms old`)
    this.#checkKey(instance, lease, textOf(first.member.sealed.sealed), from)
    for (const [name, scope] of scopesOf(lease)) {
      const is = health.of(instance, lease, name)
      const known = fitting.flatMap(({ member, told }) => health.knownSince(instance, from.at, told, member, scope))
      if (!known.some((one) => one.epoch === is.epoch && one.strikes === is.strikes && one.until === is.until)) {
        broken(`a lease goes by ${JSON.stringify(is)}, not by ${JSON.stringify(known)}`)
      }
    }
    const trials = this.#trialsOf(instance, lease)
    const isTried = this.#leased.some(
      (one) =>
        one.instance === instance &&
        one.life === instance.life &&
        one.endedAt === undefined &&
        (one.isKept || !one.lease.hasEnded) &&
        simulation.now - one.at < 26 * second &&
        one.lease.terms.request_id !== request_id &&
        this.#trialsOf(instance, one.lease).some((name) => trials.includes(name))
    )
    if (isTried) broken(`two trials at once of ${credential_id}`)
    this.#leased.push({ instance, life: instance.life, lease, isKept, at: from.at, endedAt: undefined })
  }

  /** A lease holds the stored key, or a token that this key has signed and that is good for a while; no key that cannot be opened. */
  #checkKey(instance: Instance, lease: Lease, key: string, from: Moment) {
    const { otherKeyring } = instance
    const isClosed = otherKeyring !== undefined && otherKeyring.since < from.at
    if (isClosed && this.#scene.simulation.now < otherKeyring.until) broken("a key was leased that could not be opened")
    const { keys, provider } = lease.terms
    const cloudKey = keys === "tokens" && signsTokens(provider) ? parseCloudKey(provider, key) : undefined
    if (cloudKey === undefined || Result.isFailure(cloudKey)) {
      if (lease.text() !== key) broken("a lease has another key")
      return
    }
    if (lease.token === undefined) return broken("a lease has a key that should sign tokens")
    const minted_at = lease.token.expires_at - tokens.life
    if (Effect.runSync(mint(cloudKey.success, minted_at))?.text !== lease.text())
      broken("a lease has a token of another key")
    const [asked, now] = [from.at, this.#scene.simulation.now].map((at) => epoch + instance.skew + at) as [
      number,
      number
    ]
    if (now < minted_at || asked >= minted_at + tokens.kept) broken("a token is handed out that is old")
  }

  /** Runs while an instance looks for an attempt, and checks what it finds before its scope closes. */
  readonly finding: Shared["finding"] = (instance, request, past, options, found) =>
    Effect.suspend(() => {
      const { simulation } = this.#scene
      const from = this.#scene.now
      const reports = this.#reports.get(instance)
      const count = (change: number) => this.#busy.set(instance, (this.#busy.get(instance) ?? 0) + change)
      count(1)
      return Effect.onExit(found, (exit) =>
        Effect.sync(() => {
          const isAlone = this.#busy.get(instance) === 1
          count(-1)
          if (Exit.isFailure(exit)) {
            this.#leftAt.set(instance, simulation.now)
            return
          }
          if (!instance.isAlive) return
          const isSettled = simulation.now === from.at && this.#reports.get(instance) === reports
          this.#checkFound(instance, exit.value, past, from, options, {
            isAlone,
            isSettled,
            isNamed: "account_id" in request
          })
        })
      )
    })

  /** An attempt is the first step of a plan of the book that was not tried, and a key is passed over for a reason that there is. */
  #checkFound(
    instance: Instance,
    next: NextAttempt,
    past: Past,
    from: Moment,
    { freshness = "now", keepTrial: isKept = false, request_id }: AttemptOptions,
    {
      isAlone,
      isNamed,
      isSettled
    }: { readonly isAlone: boolean; readonly isNamed: boolean; readonly isSettled: boolean }
  ) {
    const { attempt, request } = next
    const age = freshness === "now" || !isNamed ? 0 : Duration.toMillis(freshness)
    const refused = next.past.slice(past.length)
    for (const { credential_id, result } of refused) {
      if (result === "on_trial") this.#checkOnTrial(instance, credential_id, request_id, from, isAlone)
      const wasClosed = instance.unopenedAt >= from.at - 15 * second
      if (result === "unknown_key" && !wasClosed) broken("a key is refused although its keyring is there")
    }
    if (isSettled) {
      const plan = { ...next.plan(), request }
      this.#checkPlan(instance, plan, from, age)
      const expected = plan.steps.find((step) => mayBeTried(past, refused, step))
      if (nameOf(expected) !== nameOf(attempt?.step)) {
        broken(`the next attempt is ${nameOf(attempt?.step)}, not ${nameOf(expected)}`)
      }
    }
    if (attempt !== undefined && !mayBeTried(past, refused, attempt.step)) broken("a step is tried that may not be")
    if (attempt?.step._tag === "Own" && attempt.lease?.hasEnded === false) {
      this.#checkLease(instance, attempt.lease, attempt.step.row, from, { freshness: age, isKept, request })
    }
  }

  #checkOnTrial(
    instance: Instance,
    credential_id: CredentialId | null,
    request_id: string | undefined,
    from: Moment,
    isAlone: boolean
  ) {
    const { simulation } = this.#scene
    // What was left before its answer came may have claimed a trial that nobody noted.
    if (!isAlone || simulation.now - (this.#leftAt.get(instance) ?? -Infinity) < 31 * second) return
    const isTried = this.#leased.some(
      ({ at, endedAt = Infinity, instance: other, isKept, lease, life }) =>
        other === instance &&
        life === other.life &&
        lease.terms.credential_id === credential_id &&
        lease.terms.request_id !== request_id &&
        (endedAt >= from.ran || !lease.hasEnded) &&
        (!isKept || simulation.now - at < 31 * second)
    )
    if (!isTried) broken("a key is refused as on trial, and nobody tries it")
  }

  /** A report counts as of the upstream's answer, however late, often and to whichever instance it comes. */
  readonly reported: Shared["reported"] = (instance, attempt, outcome, at) => {
    const { credential_id, request_id } = attempt.terms
    const { now, ran } = this.#scene.simulation
    this.#reports.set(instance, (this.#reports.get(instance) ?? 0) + 1)
    for (const one of this.#leased) {
      const { terms } = one.lease
      const isSame = terms.request_id === request_id && terms.credential_id === credential_id
      if (isSame && one.instance === instance && one.life === instance.life) one.endedAt ??= ran
    }
    const name = `${request_id} ${credential_id}`
    const life = `${this.#scene.instances.indexOf(instance)} ${instance.life}`
    const named = this.handed.filter((one) => one.name === name && one.isReported)
    const truths = named.flatMap((one) => {
      if (one.took !== null) return [Math.min(one.at + one.took, now)]
      const heard = one.heard.get(life) ?? now
      one.heard.set(life, heard)
      // A call that was repeated has two texts for one attempt, and this may be the first report of this one.
      return named.length > 1 ? [heard, now] : [heard]
    })
    const isInTime = instance.isSynchronized && this.handed.every((one) => one.name !== name || one.isInTime)
    const isTrue = truths.length === 0 ? at === now : truths.some((truth) => Math.abs(truth - at) <= clockError)
    if (isInTime && !isTrue)
      broken(`a report counts as of ${now - at} ms ago, not of ${truths.map((truth) => now - truth).join()}`)
    this.#scene.health.report(instance, attempt, outcome, at)
  }

  /** Everything that was leased has ended. */
  checkEnded() {
    if (this.#leased.some(({ lease }) => !lease.hasEnded)) broken("a lease outlives its instance")
  }

  readonly deeds: Deeds<"plan" | "attempt" | "refuse models"> = {
    plan: (deed, act, instance) => {
      const { random, simulation } = this.#scene
      let from = this.#scene.now
      let reports = this.#reports.get(instance)
      // What was asked for acts when it is run.
      const late = random.once(4) ? Effect.sleep(random.pick([1, 1500])) : Effect.void
      const before = Effect.sync(() => {
        from = this.#scene.now
        reports = this.#reports.get(instance)
      })
      const planned = Effect.onExit(
        Router.use(({ plan }) => {
          const planning = plan(routed(deed), deed.freshness === 0 ? "now" : Duration.millis(deed.freshness))
          return Effect.andThen(Effect.andThen(late, before), planning)
        }),
        (exit) =>
          Effect.sync(() => {
            if (Exit.hasInterrupts(exit)) return
            this.checkPlanned(deed, exit, from)
            const isSettled = simulation.now === from.at && this.#reports.get(instance) === reports
            if (Exit.isSuccess(exit) && isSettled)
              this.#checkPlan(instance, exit.value, from, deed.apiKey === null ? deed.freshness : 0)
          })
      )
      return this.#scene.ask(instance, act, planned)
    },

    attempt: (deed, act, instance) => {
      const { freshness, outcome, step: n, takes } = deed
      const asked = Effect.gen(function* () {
        const router = yield* Router
        const { life } = instance
        const isOver = () => instance.life !== life || !instance.isAlive
        const request = routed(deed)
        const { steps } = yield* router.plan(request, Duration.millis(freshness))
        const past = steps.slice(0, n).map(triedOf)
        let leased: Lease | undefined
        const used = Effect.gen(function* () {
          const { attempt } = yield* router.nextAttempt(request, past, { freshness: Duration.millis(freshness) })
          if (attempt?.lease === undefined || isOver()) return
          leased = attempt.lease
          yield* Effect.sleep(takes)
          if (isOver() || outcome._tag === "Abandoned") return
          yield* router.report(attempt.lease, outcome)
        })
        yield* Effect.scoped(used)
        if (leased?.hasEnded === false) broken("a lease outlives its scope")
      })
      return this.#scene.ask(instance, act, asked)
    },

    "refuse models": ({ tenant }, act, instance) => {
      const asked = Effect.gen(function* () {
        const router = yield* Router
        for (let n = 0; n < 101; n += 1) {
          const request = { ...requestAt(tenant, 0), model: `made/up ${n}` }
          const refused = Effect.gen(function* () {
            const { attempt } = yield* router.nextAttempt(request, [], { freshness: Duration.minutes(1) })
            if (attempt?.lease !== undefined) yield* router.report(attempt.lease, { _tag: "Forbidden" })
          })
          yield* Effect.scoped(refused)
        }
      })
      return this.#scene.ask(instance, act, asked)
    }
  }
}

const triedOf = (step: Step): Past[number] => ({
  provider: step.provider,
  credential_id: step._tag === "Own" ? step.credential_id : null,
  result: "Rejected"
})

const nameOf = (step: Step | undefined) =>
  step === undefined ? "none" : step._tag === "Own" ? step.credential_id : `${step.provider} shared`

/** Whether a step may be tried: not twice, not of a provider that is down, and not shared behind a key that does not open. */
const mayBeTried = (past: Past, refused: Past, step: Step): boolean => {
  const ofProvider = past.filter(({ provider }) => provider === step.provider)
  const isDown = ofProvider.length > 1 && ofProvider.slice(-2).every(({ result }) => result === "UpstreamFailed")
  const id = step._tag === "Own" ? step.credential_id : null
  const isTried = [...ofProvider, ...refused].some((one) => one.provider === step.provider && one.credential_id === id)
  const isWithheld = refused.some(({ provider, result }) => provider === step.provider && result !== "on_trial")
  return !isDown && !isTried && !(step._tag === "Shared" && isWithheld)
}
