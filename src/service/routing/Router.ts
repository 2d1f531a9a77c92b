import { Cause, Clock, Context, Duration, Effect, Layer, type Scope } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import type { ApiKeyHash } from "../../domain/Identifiers.ts"
import { type Provider, signsTokens } from "../../domain/Provider.ts"
import { availabilityOf, type Health, type Moment, momentOf, monotonicMillis } from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Plan, ProviderPlan } from "../../domain/routing/Plan.ts"
import {
  searchStart,
  type SearchResult as FoundStep,
  nextStep,
  type SearchPosition,
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
import { type Attempt, makeWalk, type RouterOperations, runPlan, retrySoon, type Walk } from "./Walk.ts"

/** Maximum age of a lease's pools, in milliseconds, unless its plan allows more (Q19). */
const leaseFreshness = 1000

/** Credentials that a search examines before it waits for its turn: about 0.1 ms. */
const maxExamined = 256

/** Whether the database is away or overloaded. Any other cause is a defect. */
const isUnavailable = (cause: Cause.Cause<unknown>) => {
  const failure = Cause.squash(cause)
  return failure instanceof ServiceUnavailable || failure instanceof DatabaseFailure
}

const millisOf = (freshness: Freshness) =>
  freshness === "now" ? 0 : Math.min(Duration.toMillis(freshness), longestFreshness)

type CredentialFilter = Pick<RoutingRequest, "credential_id">

/** Withholds shared capacity from a request that names one credential, which tests that credential alone. */
const targetsOf = ({
  credential_id,
  targets
}: Pick<RoutingRequest, "targets"> & CredentialFilter): RoutingRequest["targets"] =>
  credential_id === undefined
    ? targets
    : targets.map(({ endpoint, provider }) => ({ provider, endpoint: { ...endpoint, shared: false } }))

const poolFrom = (snapshot: Snapshot | undefined, { credential_id }: CredentialFilter): Pool => {
  if (credential_id === undefined) return snapshot?.pool ?? []
  const member = snapshot?.byId.get(credential_id)
  return member === undefined ? [] : [member]
}

/** A request that names one credential may use it although it is parked, unless it is leaked. */
const availabilityTo = (
  { credential_id }: CredentialFilter,
  health: Health,
  { leaked }: PooledCredential,
  now: Moment
) => (credential_id === undefined || leaked ? availabilityOf(health, leaked, now) : ({ _tag: "Free" } as const))

type UnresolvedRequest = Omit<RoutingRequest, "account_id" | "workspace_id">

const providersOf = ({ targets }: UnresolvedRequest) => targets.map(({ provider }) => provider)

const versionsIn = ({ snapshots }: Snapshots) => snapshots.map(({ version }) => version).join()

const ifUnavailable = <E>(cause: Cause.Cause<ServiceUnavailable | E>): Effect.Effect<never, PoolsUnavailable | E> =>
  isUnavailable(cause) ? Effect.fail(new PoolsUnavailable()) : Effect.failCause(cause as Cause.Cause<E>)

const orUnavailable = <A, E>(pools: Effect.Effect<A, ServiceUnavailable | E>): Effect.Effect<A, PoolsUnavailable | E> =>
  Effect.catchCause(pools, ifUnavailable<E>)

type Snapshots = Pick<WorkspacePools, "snapshots">

const isSealUnavailable = ({ shared }: ProviderPlan) =>
  shared.removed.some((removal) => removal.reason === "seal" && removal.seal === "unavailable")

/** A plan that computes its parts on first read. */
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

  get #computed(): Plan {
    return (this.#plan ??= this.#make())
  }

  get steps(): Plan["steps"] {
    return this.#computed.steps
  }

  get providers(): Plan["providers"] {
    return this.#computed.providers
  }

  get retry_at(): number | null {
    return this.#computed.retry_at
  }
}

const make = Effect.gen(function* () {
  const { current, inTurn, currentForKey, slice, reread } = yield* Pools
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

  const sourcesOf = (request: RoutingRequest, { snapshots }: Snapshots) => {
    const now = momentOf(clock)
    const providers = providersOf(request)
    return {
      now,
      poolOfProvider: (provider: Provider) => poolFrom(snapshots[providers.indexOf(provider)], request),
      availabilityOf: (pooled: PooledCredential) =>
        availabilityTo(request, healthOf(request, pooled, now.monotonic), pooled, now)
    }
  }

  /** Finds a step; waits for a turn if that takes long. */
  const stepFrom = (
    request: PlannedRequest["request"],
    pools: Snapshots,
    from: SearchPosition,
    isWanted: Search["isWanted"]
  ): Effect.Effect<FoundStep, ServiceUnavailable> => {
    const { availabilityOf, poolOfProvider } = sourcesOf(request, pools)
    const search = { request, poolOfProvider, availabilityOf, isWanted, onExcluded: metered.excluded }
    const first = nextStep(search, from, maxExamined)
    if (!first.isPaused) return Effect.succeed(first)
    const searchOn = ({ place }: FoundStep) => slice(() => nextStep(search, place, maxExamined))
    const rest = Effect.gen(function* () {
      let one = yield* searchOn(first)
      while (one.isPaused) one = yield* searchOn(one)
      return one
    })
    return inTurn(request.account_id, rest)
  }

  const planOfPools = (resolved: ResolvedRequest, pools: Snapshots) => {
    const { request } = resolved
    return Effect.map(
      stepFrom(request, pools, searchStart, () => true),
      ({ place, step }): PlannedRequest => {
        const members = pools.snapshots.reduce((sum, { pool }) => sum + pool.length, 0)
        const start = { versions: versionsIn(pools), place }
        return new PlanOfPools(resolved, { isEmpty: step === undefined, members, start }, () => {
          const { availabilityOf, now, poolOfProvider } = sourcesOf(request, pools)
          const plan = planFor(request, poolOfProvider, availabilityOf)
          if (!plan.providers.some(isSealUnavailable)) return plan
          return { ...plan, retry_at: Math.min(plan.retry_at ?? Infinity, now.wall + retrySoon) }
        })
      }
    )
  }

  const planFrom = <E>(
    unresolved: UnresolvedRequest,
    freshness: number,
    pools: Effect.Effect<WorkspacePools, ServiceUnavailable | E>,
    api_key_hash?: ApiKeyHash
  ): Effect.Effect<PlannedRequest, PoolsUnavailable | E> =>
    Effect.suspend(() => {
      const key = api_key_hash && { api_key_hash, confirmed_at: monotonicMillis(clock) }
      const planned = Effect.flatMap(pools, (snapshots) => {
        const { account_id, workspace_id } = snapshots
        const request = { ...unresolved, targets: targetsOf(unresolved), account_id, workspace_id }
        return planOfPools({ request, freshness, ...(key && { key }) }, snapshots)
      })
      return orUnavailable(planned)
    })

  const planWithin = (unresolved: RoutingRequest, freshness: number) =>
    planFrom(unresolved, freshness, current(unresolved, providersOf(unresolved), freshness))

  /** The pools of an attempt; none if their workspace is gone. */
  const poolsFor = ({ freshness, request }: ResolvedRequest, providers: ReadonlyArray<Provider>) =>
    Effect.catchTag(
      orUnavailable(current(request, providers, Math.max(leaseFreshness, freshness))),
      "UnknownWorkspace",
      () => Effect.succeed<Snapshots>({ snapshots: [] })
    )

  /** Like `poolsFor`; none if the API key is revoked. Calls `confirm` if it is not. */
  const poolsOfKey = (request: PlannedRequest["request"], api_key_hash: ApiKeyHash, confirm: () => void) => {
    const { workspace_id } = request
    const asked = orUnavailable(currentForKey({ api_key_hash, workspace_id }, providersOf(request)))
    const pools = Effect.tap(asked, () => Effect.sync(confirm))
    return Effect.catchTag(pools, ["UnknownApiKey", "ApiKeyMayNotRoute", "UnknownWorkspace"], () =>
      Effect.succeed<Snapshots>({ snapshots: [] })
    )
  }

  const search: RouterOperations["search"] = ({ freshness, key, request, start }) => {
    const providers = providersOf(request)
    let { place, versions } = start
    let confirmed_at = key?.confirmed_at ?? Number.POSITIVE_INFINITY
    const pools = Effect.suspend(() => {
      const now = monotonicMillis(clock)
      if (key === undefined || now < confirmed_at + leaseFreshness) return poolsFor({ request, freshness }, providers)
      return poolsOfKey(request, key.api_key_hash, () => void (confirmed_at = now))
    })
    return {
      restart: () => void (place = searchStart),
      next: (isWanted) =>
        Effect.flatMap(pools, (snapshots) => {
          const newest = versionsIn(snapshots)
          if (newest !== versions) place = searchStart
          versions = newest
          return Effect.map(orUnavailable<FoundStep, never>(stepFrom(request, snapshots, place, isWanted)), (one) => {
            place = one.place
            return one.step
          })
        })
    }
  }

  const releaseTrial = (lease: Lease) => ledger.releaseTrial(lease.terms, lease.health, lease)

  const report = (lease: Lease, outcome: Outcome) => {
    releaseTrial(lease)
    ledger.report(lease.terms, lease.health, outcome)
    uses.reported(lease.terms, outcome, clock.currentTimeMillisUnsafe())
  }

  const release = (lease: Lease) => {
    lease.wipe()
    releaseTrial(lease)
  }

  /**
   * Fills a lease with a token if its key signs one; else with the key, unless only tokens may leave the process. Reuses a
   * cached token only after `verify`: the key must still open under its policy.
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
    if (!tokens.isCached(lease.terms)) return signed
    const verified = Effect.onError(verify(sealed, context), () =>
      Effect.sync(() => tokens.wipe(lease.terms.credential_id))
    )
    return Effect.flatMap(verified, () => (tokens.open(lease.terms, fill) ? Effect.void : signed))
  }

  /** Opens the key of a planned row into a lease. After an unknown KEK, rereads the row: it may have been rewrapped. */
  const openLease = (
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
    onLease: (lease: Lease) => void
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
    onLease(lease)
    return Effect.onError(openLease(lease, resolved, step, pooled), () => Effect.sync(() => release(lease)))
  }

  const leaseOf: RouterOperations["lease"] = (resolved, step, onLease) =>
    metered.lease(
      Effect.flatMap(poolsFor(resolved, [step.provider]), ({ snapshots: [snapshot] }) =>
        leaseFrom(resolved, step, snapshot, onLease)
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
        leaseOf(plan, step, (opening) => void (lease = opening))
      )
    })

  /** Computes the rest of a plan when it is the account's turn. */
  const complete = (plan: PlannedRequest) =>
    inTurn(
      plan.request.account_id,
      Effect.as(
        slice(() => plan.retry_at),
        plan
      )
    )

  /** Reads the time from cached pools, however old. */
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
      metered.plan(
        planFrom(request, millisOf(freshness), currentForKey(request, providersOf(request)), request.api_key_hash)
      ),
    lease,
    report: (lease, outcome) => Effect.sync(() => report(lease, outcome)),
    run: runPlan(walk),
    walk,
    verdicts: (plan, show) =>
      inTurn(
        plan.request.account_id,
        Effect.flatMap(
          slice(() => plan.providers),
          (providers) => slice(() => show(providers))
        )
      ),
    redact: (text, lease) => lease?.redact(text) ?? text
  })
})

/**
 * Plans a request, leases the keys of the plan one by one, and learns from the upstreams' answers. In process only: no route
 * of the HTTP API reaches it.
 */
export class Router extends Context.Service<
  Router,
  {
    /**
     * Plans the attempts for a request. `now`, the default, respects every change acknowledged on any instance before the
     * call. A duration of up to ten minutes reuses snapshots confirmed within it, even while the database is away.
     */
    readonly plan: (
      request: RoutingRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, UnknownWorkspace | PoolsUnavailable>
    /** Plans for the account of an API key that may route. Always looks the key up: it may be revoked. */
    readonly planForKey: (
      request: KeyRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, UnknownApiKey | ApiKeyMayNotRoute | UnknownWorkspace | PoolsUnavailable>
    /** Opens the key of a step until the scope closes. Refuses if its row has changed since the plan. */
    readonly lease: (
      plan: PlannedRequest,
      step: OwnStep
    ) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable, Scope.Scope>
    /** Reports the outcome of an attempt. Holds here at once, and in other processes once it is stored. */
    readonly report: (lease: Lease, outcome: Outcome) => Effect.Effect<void>
    /**
     * Leases, attempts and reports the steps in order, each on the pools as they are then, until one gives an answer to
     * return. Shared steps have no lease. A lease ends with its attempt, which may end at the head of the answer.
     */
    readonly run: <A, E, R>(
      plan: PlannedRequest,
      attempt: Attempt<A, E, R>
    ) => Effect.Effect<A, E | Exhausted | PoolsUnavailable, R>
    /** Passes the `providers` of a plan to `show` when it is the account's turn; fails at the request's deadline. */
    readonly verdicts: <A>(
      plan: PlannedRequest,
      show: (providers: Plan["providers"]) => A
    ) => Effect.Effect<A, ServiceUnavailable>
    /** The walk under `run`, for callers that record and close each attempt themselves. */
    readonly walk: (plan: PlannedRequest) => Walk
    /**
     * Replaces the key of a lease by the id of its credential, in every encoding that upstreams repeat. Call it before the
     * lease ends, and use `redactKey` for the key of shared capacity.
     */
    readonly redact: (text: string, lease: Lease | undefined) => string
  }
>()("byok/Router") {
  static readonly layer: Layer.Layer<Router, never, Cipher | CredentialPools | CredentialUse | Parkings> =
    Layer.provide(Layer.effect(this, make), [Pools.layer, Tokens.layer])
}
