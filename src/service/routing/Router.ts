import { Cause, Clock, Context, Duration, Effect, Layer, type Scope } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import type { ApiKeyHash } from "../../domain/Identifiers.ts"
import { type Provider, signsTokens } from "../../domain/Provider.ts"
import { availabilityOf, type Health, type Moment, momentOf, monotonicMillis } from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Plan, ProviderPlan } from "../../domain/routing/Plan.ts"
import {
  firstPlace,
  type Found as FoundStep,
  nextStep,
  type Place,
  planFor,
  type Search
} from "../../domain/routing/planFor.ts"
import type { Pool, PooledCredential } from "../../domain/routing/Pool.ts"
import { longestFreshness, type RoutingRequest } from "../../domain/routing/RoutingRequest.ts"
import { contextOf, type SealedKey, type SealingContext } from "../../domain/SealedKey.ts"
import { Cipher, type OpenFailure } from "../../port/Cipher.ts"
import type { CredentialPools } from "../../port/CredentialPools.ts"
import type { CredentialUse } from "../../port/CredentialUse.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { Parkings } from "../../port/Parkings.ts"
import { Tokens, TokensOnly } from "../tokens/Tokens.ts"
import { Lease } from "./Lease.ts"
import { makeHealthLedger, makeUseLedger } from "./ledgers.ts"
import type { Freshness, KeyRequest, PlannedRequest, ResolvedRequest } from "./PlannedRequest.ts"
import { Pools, sealStatusByError, type Snapshot, type WorkspacePools } from "./Pools.ts"
import {
  type Exhausted,
  LeaseRefused,
  PoolsUnavailable,
  type ApiKeyMayNotRoute,
  type UnknownApiKey,
  type UnknownWorkspace
} from "./RouterErrors.ts"
import { makeRouterMeter } from "./RouterMeter.ts"
import { type Attempt, makeWalk, type RouterOperations, runPlan, soon, type Walk } from "./Walk.ts"

/** How old what a lease goes by may be, in milliseconds, or as old as its plan's if that is more (Q19). */
const leaseFreshness = 1000

/** How many credentials a search for a step looks at before it waits for its turn: that takes some 0.1 ms. */
const lookedAt = 256

/** The database cannot be asked, or is asked too much. Anything else is a defect. */
const isUnavailable = (cause: Cause.Cause<unknown>) => {
  const failure = Cause.squash(cause)
  return failure instanceof ServiceUnavailable || failure instanceof DatabaseFailure
}

const millisOf = (freshness: Freshness) =>
  freshness === "now" ? 0 : Math.min(Duration.toMillis(freshness), longestFreshness)

type Alone = Pick<RoutingRequest, "credential_id">

/** A request for one credential asks whether that works: nothing stands in for it, and only a leak keeps it parked. */
const targetsOf = ({ credential_id, targets }: Pick<RoutingRequest, "targets"> & Alone): RoutingRequest["targets"] =>
  credential_id === undefined
    ? targets
    : targets.map(({ endpoint, provider }) => ({ provider, endpoint: { ...endpoint, shared: false } }))

const poolFrom = (snapshot: Snapshot | undefined, { credential_id }: Alone): Pool => {
  if (credential_id === undefined) return snapshot?.pool ?? []
  const member = snapshot?.byId.get(credential_id)
  return member === undefined ? [] : [member]
}

const availabilityTo = ({ credential_id }: Alone, health: Health, { leaked }: PooledCredential, now: Moment) =>
  credential_id === undefined || leaked ? availabilityOf(health, leaked, now) : ({ _tag: "Free" } as const)

type Asked = Omit<RoutingRequest, "account_id" | "workspace_id">

const providersOf = ({ targets }: Asked) => targets.map(({ provider }) => provider)

const versionsIn = ({ snapshots }: Found) => snapshots.map(({ version }) => version).join()

const ifUnavailable = <E>(cause: Cause.Cause<ServiceUnavailable | E>): Effect.Effect<never, PoolsUnavailable | E> =>
  isUnavailable(cause) ? Effect.fail(new PoolsUnavailable()) : Effect.failCause(cause as Cause.Cause<E>)

const orUnavailable = <A, E>(pools: Effect.Effect<A, ServiceUnavailable | E>): Effect.Effect<A, PoolsUnavailable | E> =>
  Effect.catchCause(pools, ifUnavailable<E>)

type Found = Pick<WorkspacePools, "snapshots">

const isSealUnavailable = ({ shared }: ProviderPlan) =>
  shared.removed.some((removal) => removal.reason === "seal" && removal.seal === "unavailable")

/** A plan whose parts are made when one of them is first read. */
class PlanOfPools implements PlannedRequest {
  readonly request: PlannedRequest["request"]
  readonly freshness: number
  readonly key: PlannedRequest["key"]
  readonly isEmpty: boolean
  readonly members: number
  readonly start: PlannedRequest["start"]
  readonly #make: () => Plan
  #plan: Plan | undefined

  constructor(
    { freshness, key, request }: ResolvedRequest,
    { isEmpty, members, start }: Pick<PlannedRequest, "isEmpty" | "members" | "start">,
    make: () => Plan
  ) {
    this.request = request
    this.freshness = freshness
    this.key = key
    this.isEmpty = isEmpty
    this.members = members
    this.start = start
    this.#make = make
  }

  get #made(): Plan {
    return (this.#plan ??= this.#make())
  }

  get steps(): Plan["steps"] {
    return this.#made.steps
  }

  get providers(): Plan["providers"] {
    return this.#made.providers
  }

  get retry_at(): number | null {
    return this.#made.retry_at
  }
}

const make = Effect.gen(function* () {
  const { current, inTurn, ofKey, part, reread } = yield* Pools
  const { read, verify } = yield* Cipher
  const tokens = yield* Tokens
  const tokensOnly = yield* TokensOnly
  const metered = yield* makeRouterMeter
  const ledger = yield* makeHealthLedger(metered.parked)
  const uses = yield* makeUseLedger
  const clock = yield* Clock.Clock

  const healthOf = ({ account_id, model }: RoutingRequest, pooled: PooledCredential, now: number): Health => {
    const { credential, key_version, stored } = pooled
    return ledger.healthOf({ account_id, credential_id: credential.id, key_version, model }, stored, now)
  }

  /** What a plan of a request is made from, now. */
  const sourcesOf = (request: RoutingRequest, { snapshots }: Found) => {
    const now = momentOf(clock)
    const providers = providersOf(request)
    return {
      now,
      poolOfProvider: (provider: Provider) => poolFrom(snapshots[providers.indexOf(provider)], request),
      availabilityOf: (pooled: PooledCredential) =>
        availabilityTo(request, healthOf(request, pooled, now.monotonic), pooled, now)
    }
  }

  /** Searches for a step, in a turn if there is much to look at. */
  const stepFrom = (
    request: PlannedRequest["request"],
    found: Found,
    from: Place,
    isWanted: Search["isWanted"]
  ): Effect.Effect<FoundStep, ServiceUnavailable> => {
    const { availabilityOf, poolOfProvider } = sourcesOf(request, found)
    const search = { request, poolOfProvider, availabilityOf, isWanted, excluded: metered.excluded }
    const first = nextStep(search, from, lookedAt)
    if (!first.isPaused) return Effect.succeed(first)
    const goOn = ({ place }: FoundStep) => part(() => nextStep(search, place, lookedAt))
    const rest = Effect.gen(function* () {
      let one = yield* goOn(first)
      while (one.isPaused) one = yield* goOn(one)
      return one
    })
    return inTurn(request.account_id, rest)
  }

  const planOfPools = (resolved: ResolvedRequest, found: Found) => {
    const { request } = resolved
    return Effect.map(
      stepFrom(request, found, firstPlace, () => true),
      ({ place, step }): PlannedRequest => {
        const members = found.snapshots.reduce((sum, { pool }) => sum + pool.length, 0)
        const start = { versions: versionsIn(found), place }
        return new PlanOfPools(resolved, { isEmpty: step === undefined, members, start }, () => {
          const { availabilityOf, now, poolOfProvider } = sourcesOf(request, found)
          const plan = planFor(request, poolOfProvider, availabilityOf)
          if (!plan.providers.some(isSealUnavailable)) return plan
          return { ...plan, retry_at: Math.min(plan.retry_at ?? Infinity, now.wall + soon) }
        })
      }
    )
  }

  const planFrom = <E>(
    asked: Asked,
    freshness: number,
    pools: Effect.Effect<WorkspacePools, ServiceUnavailable | E>,
    api_key_hash?: ApiKeyHash
  ): Effect.Effect<PlannedRequest, PoolsUnavailable | E> =>
    Effect.suspend(() => {
      const key = api_key_hash && { api_key_hash, confirmed_at: monotonicMillis(clock) }
      const planned = Effect.flatMap(pools, (found) => {
        const { account_id, workspace_id } = found
        const request = { ...asked, targets: targetsOf(asked), account_id, workspace_id }
        return planOfPools({ request, freshness, ...(key && { key }) }, found)
      })
      return orUnavailable(planned)
    })

  const planWithin = (asked: RoutingRequest, freshness: number) =>
    planFrom(asked, freshness, current(asked, providersOf(asked), freshness))

  /** The pools of providers that an attempt goes by; none if their workspace is gone. */
  const poolsFor = ({ freshness, request }: ResolvedRequest, providers: ReadonlyArray<Provider>) =>
    Effect.catchTag(
      orUnavailable(current(request, providers, Math.max(leaseFreshness, freshness))),
      "UnknownWorkspace",
      () => Effect.succeed<Found>({ snapshots: [] })
    )

  /** The same of a request that an API key opened, which may be revoked since. */
  const poolsOfKey = (request: PlannedRequest["request"], api_key_hash: ApiKeyHash) =>
    Effect.catchTag(
      orUnavailable(ofKey({ api_key_hash, workspace_id: request.workspace_id }, providersOf(request))),
      ["UnknownApiKey", "ApiKeyMayNotRoute", "UnknownWorkspace"],
      () => Effect.succeed<Found>({ snapshots: [] })
    )

  const search: RouterOperations["search"] = ({ freshness, key, request, start }) => {
    const providers = providersOf(request)
    let { place, versions } = start
    let confirmed_at = key?.confirmed_at ?? Number.POSITIVE_INFINITY
    const pools = Effect.suspend(() => {
      const now = monotonicMillis(clock)
      if (key === undefined || now < confirmed_at + leaseFreshness) return poolsFor({ request, freshness }, providers)
      return Effect.tap(poolsOfKey(request, key.api_key_hash), () => Effect.sync(() => void (confirmed_at = now)))
    })
    return {
      restart: () => void (place = firstPlace),
      next: (isWanted) =>
        Effect.flatMap(pools, (found) => {
          const newest = versionsIn(found)
          if (newest !== versions) place = firstPlace
          versions = newest
          return Effect.map(orUnavailable<FoundStep, never>(stepFrom(request, found, place, isWanted)), (one) => {
            place = one.place
            return one.step
          })
        })
    }
  }

  const giveBack = (lease: Lease) => ledger.giveBack(lease.terms, lease.health, lease)

  const report = (lease: Lease, outcome: Outcome) => {
    giveBack(lease)
    ledger.report(lease.terms, lease.health, outcome)
    uses.reported(lease.terms, outcome, clock.currentTimeMillisUnsafe())
  }

  /** Wipes the key of a lease, and lets others try the key. */
  const release = (lease: Lease) => {
    lease.wipe()
    giveBack(lease)
  }

  /**
   * Fills a lease with a token where its key signs one. A kept one is handed out only while the key could be opened: its
   * data key is unwrapped under its policy.
   */
  const withToken = (
    lease: Lease,
    sealed: SealedKey,
    context: SealingContext
  ): Effect.Effect<void, OpenFailure | LeaseRefused> => {
    const fill: Lease["fill"] = (key, token) => lease.fill(key, token)
    const signed = Effect.suspend(() => {
      const use = (key: Buffer) => {
        if (tokens.sign(lease.terms, key, fill)) return Effect.void
        if (tokensOnly) return Effect.fail(new LeaseRefused({ reason: "no_token" }))
        lease.fill(key)
        return Effect.void
      }
      return Effect.flatten(read(sealed, context, use))
    })
    if (!tokens.isKept(lease.terms)) return signed
    const verified = Effect.onError(verify(sealed, context), () =>
      Effect.sync(() => tokens.wipe(lease.terms.credential_id))
    )
    return Effect.flatMap(verified, () => (tokens.open(lease.terms, fill) ? Effect.void : signed))
  }

  /** Opens the key of a planned row into a lease. If its KEK is gone, the row may have been rewrapped since: then it has changed. */
  const opened = (
    lease: Lease,
    { request }: ResolvedRequest,
    { credential_id, provider, row }: OwnStep,
    { credential, sealed }: Snapshot["pool"][number]
  ): Effect.Effect<Lease, LeaseRefused> => {
    const context = contextOf({ ...credential, account_id: request.account_id })
    const filled =
      lease.terms.keys === "tokens" && signsTokens(provider)
        ? withToken(lease, sealed, context)
        : read(sealed, context, (key) => lease.fill(key))
    const leased = () => {
      uses.leased(lease.terms)
      return lease
    }
    return Effect.catch(Effect.map(filled, leased), (failure) => {
      if (failure._tag === "LeaseRefused") return Effect.fail(failure)
      const refused = new LeaseRefused({ reason: sealStatusByError[failure._tag] })
      if (failure._tag !== "UnknownKeyId") return Effect.fail(refused)
      return Effect.matchEffect(orUnavailable(reread(request, provider)), {
        onFailure: () => Effect.fail(refused),
        onSuccess: ({ snapshots: [snapshot] }) => {
          const isSame = snapshot?.byId.get(credential_id)?.row === row
          return Effect.fail(isSame ? refused : new LeaseRefused({ reason: "changed" }))
        }
      })
    })
  }

  const leaseFrom = (
    resolved: ResolvedRequest,
    step: OwnStep,
    snapshot: Snapshot | undefined,
    made: (lease: Lease) => void
  ): Effect.Effect<Lease, LeaseRefused> => {
    const { credential_id, key_version, provider, region, row } = step
    const { request } = resolved
    const pooled = snapshot?.byId.get(credential_id)
    if (pooled?.row !== row) return Effect.fail(new LeaseRefused({ reason: "changed" }))
    const now = momentOf(clock)
    const { account_id, model } = request
    const health = healthOf(request, pooled, now.monotonic)
    if (availabilityTo(request, health, pooled, now)._tag === "Parked") {
      return Effect.fail(new LeaseRefused({ reason: "parked" }))
    }
    const { label } = pooled.credential
    const keys = tokensOnly ? "tokens" : (request.keys ?? "as_stored")
    const terms = { account_id, credential_id, key_version, label, provider, model, region, keys, leased_at: now.wall }
    const lease = new Lease(terms, health)
    if (request.credential_id === undefined && !ledger.admit(terms, health, lease, now.monotonic)) {
      return Effect.fail(new LeaseRefused({ reason: "on_trial" }))
    }
    made(lease)
    return Effect.onError(opened(lease, resolved, step, pooled), () => Effect.sync(() => release(lease)))
  }

  const leaseOf: RouterOperations["lease"] = (resolved, step, made) =>
    metered.lease(
      Effect.flatMap(poolsFor(resolved, [step.provider]), ({ snapshots: [snapshot] }) =>
        leaseFrom(resolved, step, snapshot, made)
      )
    )

  const lease = (plan: PlannedRequest, step: OwnStep) =>
    Effect.suspend(() => {
      let lease: Lease | undefined
      const released = Effect.addFinalizer(() =>
        Effect.sync(() => {
          if (lease !== undefined) release(lease)
        })
      )
      return Effect.andThen(
        released,
        leaseOf(plan, step, (made) => void (lease = made))
      )
    })

  const complete = (plan: PlannedRequest) =>
    inTurn(
      plan.request.account_id,
      Effect.as(
        part(() => plan.retry_at),
        plan
      )
    )

  /** When to come back, by what this process knows. */
  const retryAt: RouterOperations["retryAt"] = ({ request }) =>
    Effect.match(Effect.flatMap(planWithin(request, Number.POSITIVE_INFINITY), complete), {
      onFailure: () => null,
      onSuccess: ({ retry_at }) => retry_at
    })

  const end: RouterOperations["end"] = (lease, outcome) => {
    report(lease, outcome)
    lease.wipe()
  }

  const walk = makeWalk({ end, lease: leaseOf, retryAt, search })

  return Router.of({
    plan: (request, freshness = "now") => metered.plan(planWithin(request, millisOf(freshness))),
    planForKey: (request, freshness = "now") =>
      metered.plan(planFrom(request, millisOf(freshness), ofKey(request, providersOf(request)), request.api_key_hash)),
    lease,
    report: (lease, outcome) => Effect.sync(() => report(lease, outcome)),
    run: runPlan(walk),
    walk,
    verdicts: (plan, show) =>
      inTurn(
        plan.request.account_id,
        Effect.flatMap(
          part(() => plan.providers),
          (providers) => part(() => show(providers))
        )
      ),
    redact: (text, lease) => lease?.redact(text) ?? text
  })
})

/**
 * The router's side of the credentials, in process: no route of the HTTP API reaches it. It plans a request, leases the
 * keys of the plan one by one, and learns from what the upstreams answer.
 */
export class Router extends Context.Service<
  Router,
  {
    /**
     * The attempts for a request in their order. With `now`, the default, every change that was acknowledged on any
     * instance before this began is respected. With a duration of up to ten minutes a snapshot that the database confirmed
     * within it is used without asking, also while the database is away.
     */
    readonly plan: (
      request: RoutingRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, UnknownWorkspace | PoolsUnavailable>
    /** The same for the account of an API key that may route. The key is looked up whatever the freshness: it may be revoked. */
    readonly planForKey: (
      request: KeyRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, UnknownApiKey | ApiKeyMayNotRoute | UnknownWorkspace | PoolsUnavailable>
    /** The key of a step, wiped when the scope closes. Refused if its row is not the planned one any more. */
    readonly lease: (
      plan: PlannedRequest,
      step: OwnStep
    ) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable, Scope.Scope>
    /** What the upstream answered to an attempt with the lease. It holds here at once, and elsewhere once it is stored. */
    readonly report: (lease: Lease, outcome: Outcome) => Effect.Effect<void>
    /**
     * Attempts the steps in their order, each as the pools are when it begins, until one gives an answer to return: leases,
     * attempts, reports. Shared steps have no lease. A lease ends with its attempt, which may end when the head of the answer has arrived.
     */
    readonly run: <A, E, R>(
      plan: PlannedRequest,
      attempt: Attempt<A, E, R>
    ) => Effect.Effect<A, E | Exhausted | PoolsUnavailable, R>
    /** Shows the `providers` of a plan when it is the account's turn, as that may take long; fails at the request's deadline. */
    readonly verdicts: <A>(
      plan: PlannedRequest,
      show: (providers: Plan["providers"]) => A
    ) => Effect.Effect<A, ServiceUnavailable>
    /** What `run` walks through, for gateways that are driven from outside: they note the end of each attempt and close it. */
    readonly walk: (plan: PlannedRequest) => Walk
    /**
     * Replaces the key of a lease by the id of its credential, in every form in which upstreams repeat keys in errors.
     * Nothing is replaced once the lease has ended, or without one: redact before the attempt is over, and the key of
     * shared capacity with `redactKey`.
     */
    readonly redact: (text: string, lease: Lease | undefined) => string
  }
>()("byok/Router") {
  static readonly layer: Layer.Layer<Router, never, Cipher | CredentialPools | CredentialUse | Parkings> =
    Layer.provide(Layer.effect(this, make), [Pools.layer, Tokens.layer])
}
