import { Duration, Effect, Exit, Result, Scope } from "effect"
import { isDeepStrictEqual } from "node:util"
import type { CredentialId } from "../../src/domain/Identifiers.ts"
import { parseCloudKey } from "../../src/domain/KeyMaterial.ts"
import { signsTokens } from "../../src/domain/Provider.ts"
import type { OwnStep } from "../../src/domain/routing/Plan.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import type { Lease } from "../../src/service/routing/Lease.ts"
import type { PlannedRequest } from "../../src/service/routing/PlannedRequest.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { mint } from "../../src/service/tokens/mint.ts"
import { inWords, planByTheBook } from "../domain/routing/planByTheBook.ts"
import { broken, isAway, type Moment, tagOf } from "./Broken.ts"
import type { DeedOf } from "./History.ts"
import { type Instance, isSealedFor, poolNameOf, type Shared, textOf, type Told } from "./Instance.ts"
import { availabilityBy } from "./Reference.ts"
import type { Deeds, Scene } from "./Scene.ts"
import type { State } from "./StoreLog.ts"
import { epoch } from "./Simulation.ts"
import { idOf, requestAt, tenantAt } from "./Tenants.ts"

const second = 1000

/** For how long a token of Bedrock is handed out, of the time that it lives. */
const tokens = { kept: 720 * second, life: 900 * second }

interface Leased {
  readonly instance: Instance
  readonly life: number
  readonly lease: Lease
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

/** The laws of plans and of the leases of their steps. */
export class Plans {
  readonly #scene: Scene
  readonly #leased: Array<Leased> = []
  /** By credential: how many leases are being asked for. */
  readonly #opening = new Map<CredentialId, number>()
  /** How many routes may be about to lease a key, and when one last was, in tasks. */
  #routing = 0
  #routed = 0

  constructor(scene: Scene) {
    this.#scene = scene
  }

  /** The plan of a request, for an API key if it names one. What happens `before` it runs comes after it was asked for. */
  planning(
    { apiKey, first, freshness, model, tenant }: Omit<DeedOf<"open">, "do">,
    before: Effect.Effect<void> = Effect.void
  ) {
    const { account_id: _, ...request } = requestAt(tenant, model, first)
    const duration = freshness === 0 ? "now" : Duration.millis(freshness)
    const api_key_hash = apiKey === null ? undefined : tenantAt(tenant).apiKeys[apiKey]
    return Router.use(({ plan, planForKey }) => {
      const planned =
        api_key_hash === undefined
          ? plan(requestAt(tenant, model, first), duration)
          : planForKey({ ...request, api_key_hash }, duration)
      return Effect.andThen(before, planned)
    })
  }

  /** A plan is refused for a reason that there is, and never made for an API key that was revoked before. */
  checkPlanned(
    { apiKey, tenant: t }: Pick<DeedOf<"open">, "apiKey" | "tenant">,
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
  #rowsOf(instance: Instance, plan: PlannedRequest, { state, told }: { state: State; told: Told }) {
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
  checkPlan(instance: Instance, plan: PlannedRequest, from: Moment, freshness: number) {
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
   * its key, and one of a trial.
   */
  checkLease(
    instance: Instance,
    lease: Lease,
    row: string | undefined,
    from: Moment,
    { freshness, request }: Pick<PlannedRequest, "freshness" | "request">
  ) {
    if (lease.hasEnded) return
    const { counts, health } = this.#scene
    counts.leases += 1
    const { account_id, credential_id, key_version, provider } = lease.terms
    const age = Math.max(second, freshness)
    const wanted = row === undefined ? undefined : withoutKek(row)
    const fitting = this.#toldSince(instance, poolNameOf(request, provider), from, age).flatMap(({ state, told }) => {
      const member = state.rows.find(({ credential }) => credential.id === credential_id)
      const fits =
        member?.key_version === key_version &&
        (wanted === undefined || withoutKek(member.row) === wanted) &&
        !state.leaked.has(credential_id) &&
        isSealed(member, account_id)
      return fits ? [{ member, told }] : []
    })
    const [first] = fitting
    if (first === undefined) return broken(`a lease of ${credential_id}, which no state allows that is ${age} ms old`)
    this.#checkKey(instance, lease, textOf(first.member.sealed.sealed), from)
    for (const [name, scope] of scopesOf(lease)) {
      const is = health.of(instance, lease, name)
      const known = fitting.flatMap(({ member, told }) => health.knownSince(instance, from.at, told, member, scope))
      if (!known.some((one) => one.epoch === is.epoch && one.strikes === is.strikes && one.until === is.until)) {
        broken(`a lease goes by ${JSON.stringify(is)}, not by ${JSON.stringify(known)}`)
      }
    }
    const trials = this.#trialsOf(instance, lease)
    const begun = this.#leased.find((one) => one.lease === lease)?.at ?? from.at
    const isTried = this.#leased.some(
      (one) =>
        one.instance === instance &&
        one.life === instance.life &&
        one.endedAt === undefined &&
        !one.lease.hasEnded &&
        Math.abs(begun - one.at) < 26 * second &&
        one.lease !== lease &&
        this.#trialsOf(instance, one.lease).some((name) => trials.includes(name))
    )
    if (isTried) broken(`two trials at once of ${credential_id}`)
    this.#note(instance, lease, from.at)
  }

  #note(instance: Instance, lease: Lease, at: number) {
    if (this.#leased.some((one) => one.lease === lease)) return
    this.#leased.push({ instance, life: instance.life, lease, at, endedAt: undefined })
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

  readonly closed: Shared["closed"] = (instance, lease, outcome) => {
    this.#ended(lease)
    this.#scene.health.report(instance, lease, outcome)
  }

  #ended(lease: Lease | undefined) {
    for (const one of this.#leased) if (one.lease === lease) one.endedAt ??= this.#scene.simulation.ran
  }

  #countRoutes(change: number) {
    return Effect.sync(() => {
      this.#routing += change
      this.#routed = this.#scene.simulation.ran
    })
  }

  /** Notes while a route may be about to lease a key, and what it leases, whoever gets the answer. */
  readonly opening: Shared["opening"] = (instance, next) =>
    Effect.acquireUseRelease(
      Effect.map(this.#countRoutes(1), () => this.#scene.simulation.now),
      () => next,
      (at, exit) =>
        Effect.map(this.#countRoutes(-1), () => {
          if (Exit.isSuccess(exit) && exit.value?.lease !== undefined) this.#note(instance, exit.value.lease, at)
        })
    )

  /** A lease is refused for a reason that there is. */
  #checkRefusal(
    instance: Instance,
    step: OwnStep,
    reason: string,
    from: Moment,
    { freshness, key, request }: PlannedRequest
  ) {
    const { credential_id, provider, row } = step
    if (reason === "changed") {
      const states = this.#scene.log.statesSince(poolNameOf(request, provider), from, Math.max(second, freshness))
      const isSame = ({ isGone, rows }: State) =>
        !isGone && rows.find(({ credential }) => credential.id === credential_id)?.row === row
      const isRevoked = key !== undefined && this.#scene.revoked.has(key.api_key_hash)
      if (!isRevoked && states.every(isSame)) broken(`a lease was refused as changed, and nothing has`)
    }
    const isAlone = this.#opening.get(credential_id) === 1 && this.#routing === 0 && this.#routed < from.ran
    if (reason === "on_trial" && isAlone) {
      const isTried = this.#leased.some(
        ({ endedAt = Infinity, instance: other, lease, life }) =>
          other === instance &&
          life === other.life &&
          lease.terms.credential_id === credential_id &&
          endedAt >= from.ran
      )
      if (!isTried) broken(`a lease was refused as on trial, and nobody tries it`)
    }
  }

  #open(credential_id: CredentialId, change: number) {
    return Effect.sync(() => this.#opening.set(credential_id, (this.#opening.get(credential_id) ?? 0) + change))
  }

  /** Everything that was leased has ended. */
  checkEnded() {
    if (this.#leased.some(({ lease }) => !lease.hasEnded)) broken("a lease outlives its instance")
  }

  readonly deeds: Deeds<"plan" | "attempt" | "refuse models"> = {
    plan: (deed, act, instance) => {
      const { random } = this.#scene
      let from = this.#scene.now
      // What was asked for acts when it is run.
      const late = random.once(4) ? Effect.sleep(random.pick([1, 1500])) : Effect.void
      const before = Effect.andThen(
        late,
        Effect.sync(() => void (from = this.#scene.now))
      )
      const planned = Effect.onExit(this.planning(deed, before), (exit) =>
        Effect.sync(() => {
          if (Exit.hasInterrupts(exit)) return
          this.checkPlanned(deed, exit, from)
          if (Exit.isSuccess(exit))
            this.checkPlan(instance, exit.value, from, deed.apiKey === null ? deed.freshness : 0)
        })
      )
      return this.#scene.ask(instance, act, planned)
    },

    attempt: (deed, act, instance) => {
      const { apiKey, freshness, outcome, step: n, takes } = deed
      const asked = Effect.gen({ self: this }, function* () {
        const router = yield* Router
        const from = this.#scene.now
        const { life } = instance
        const isOver = () => instance.life !== life || !instance.isAlive
        const planned = yield* this.planning(deed)
        this.checkPlan(instance, planned, from, apiKey === null ? freshness : 0)
        const own = planned.steps.filter((one): one is OwnStep => one._tag === "Own")
        const step = own[n % Math.max(1, own.length)]
        if (step === undefined) return
        if (takes > 0 && n === 0) yield* Effect.sleep(takes === 3 ? 1200 : 3)
        const leasing = this.#scene.now
        const scope = yield* Scope.make()
        let lease: Lease | undefined
        const ended = Effect.andThen(
          Scope.close(scope, Exit.void),
          Effect.sync(() => {
            this.#ended(lease)
            if (lease?.hasEnded === false) broken("a lease outlives its scope")
          })
        )
        const used = Effect.gen({ self: this }, function* () {
          lease = yield* Scope.provide(router.lease(planned, step), scope)
          if (isOver()) return
          this.checkLease(instance, lease, step.row, leasing, planned)
          yield* Effect.sleep(takes)
          if (isOver() || outcome._tag === "Abandoned") return
          this.closed(instance, lease, outcome)
          Effect.runSync(router.report(lease, outcome))
        })
        const refused = Effect.catchTag(used, "LeaseRefused", ({ reason }) =>
          Effect.sync(() => this.#checkRefusal(instance, step, reason, leasing, planned))
        )
        const { credential_id } = step
        yield* Effect.onExit(Effect.andThen(this.#open(credential_id, 1), refused), () =>
          Effect.andThen(this.#open(credential_id, -1), ended)
        )
      })
      return this.#scene.ask(instance, act, asked)
    },

    "refuse models": ({ tenant }, act, instance) => {
      const asked = Effect.gen({ self: this }, function* () {
        const router = yield* Router
        for (let n = 0; n < 101; n += 1) {
          const planned = yield* router.plan({ ...requestAt(tenant, 0), model: `made/up ${n}` }, Duration.minutes(1))
          const step = planned.steps.find((one): one is OwnStep => one._tag === "Own")
          if (step === undefined) return
          const refused = Effect.gen({ self: this }, function* () {
            const lease = yield* router.lease(planned, step)
            this.closed(instance, lease, { _tag: "Forbidden" })
            Effect.runSync(router.report(lease, { _tag: "Forbidden" }))
          })
          // The key is on trial meanwhile.
          yield* Effect.acquireUseRelease(
            this.#countRoutes(1),
            () => Effect.scoped(refused),
            () => this.#countRoutes(-1)
          )
        }
      })
      return this.#scene.ask(
        instance,
        act,
        Effect.catchTag(asked, "LeaseRefused", () => Effect.void)
      )
    }
  }
}
