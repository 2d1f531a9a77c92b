import { Cause, Clock, Context, Duration, Effect, Exit, Layer, Result, type Scope } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { type Provider, signsTokens } from "../../domain/Provider.ts"
import { availabilityOf, type Health, type Moment, momentOf, monotonicMillis } from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Plan } from "../../domain/routing/Plan.ts"
import {
  nextStep,
  planFor,
  type Search,
  type SearchPosition,
  type SearchResult,
  searchStart
} from "../../domain/routing/planFor.ts"
import type { Pool, PooledCredential } from "../../domain/routing/Pool.ts"
import { longestFreshness, type RoutingRequest } from "../../domain/routing/RoutingRequest.ts"
import { contextOf } from "../../domain/SealedKey.ts"
import { Cipher, type OpenFailure } from "../../port/Cipher.ts"
import type { CredentialPools } from "../../port/CredentialPools.ts"
import type { CredentialUse } from "../../port/CredentialUse.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { Parkings } from "../../port/Parkings.ts"
import type { RequestTimeout } from "../../runtime/Deadline.ts"
import type { MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import { Tokens, TokensOnly } from "../tokens/Tokens.ts"
import { Lease } from "./Lease.ts"
import { makeLedgers } from "./ledgers.ts"
import type { Freshness, KeyRequest, PlannedRequest, ResolvedRequest } from "./PlannedRequest.ts"
import { Pools, sealStatusByError, type Snapshot, type WorkspacePools } from "./Pools.ts"
import {
  type ApiKeyMayNotRoute,
  type Exhausted,
  LeaseRefused,
  PoolsUnavailable,
  type UnknownApiKey,
  type UnknownWorkspace
} from "./RouterErrors.ts"
import { makeRouterMeter } from "./RouterMeter.ts"
import { type Attempt, makeWalk, type RouterOperations, runPlan, type Walk } from "./Walk.ts"

/**
 * Chooses keys for requests to model providers, in process or for gateways. The tenants' HTTP API does not reach it. A
 * plan lists the steps of a request; each uses a stored key (an own step) or the operator's (shared capacity). A lease
 * opens a stored key for an attempt. An upstream's refusal parks it; afterwards one request at a time tries it (trial).
 *
 * Invariant: a key opens only if its row, at most `leaseFreshness` old unless the plan allows more, is the planned one;
 * ending its lease zeroes it and ends its trial.
 */
export class Router extends Context.Service<
  Router,
  {
    /**
     * Plans the attempts for a request. With `now`, the default, the plan respects every change acknowledged on any
     * instance before the call. With a duration of up to ten minutes, it may use snapshots that the database confirmed
     * within that time, even while the database is away. With an `api_key_hash`, plans as `planForKey` does, and fails
     * with `UnknownApiKey` unless it is a live key of the account.
     */
    readonly plan: (
      request: RoutingRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, KeyFailure | PoolsUnavailable>
    /** Plans for the account of an API key, looked up each time: it may be revoked. `freshness` is for leases only. */
    readonly planForKey: (
      request: KeyRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, KeyFailure | PoolsUnavailable>
    /** Opens the key of a step until the scope closes. Refuses, for example, if its row has changed since the plan. */
    readonly lease: (
      plan: PlannedRequest,
      step: OwnStep
    ) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable, Scope.Scope>
    /** Reports the outcome of an attempt. It applies here at once, and in other processes once it is stored. */
    readonly report: (lease: Lease, outcome: Outcome) => Effect.Effect<void>
    /**
     * Leases, attempts and reports one step after another until an attempt gives an answer to return. Reads the current
     * pools for each step. Shared steps have no lease. A lease ends with its attempt, perhaps before the answer's body.
     */
    readonly run: <A, E, R>(
      plan: PlannedRequest,
      attempt: Attempt<A, E, R>
    ) => Effect.Effect<A, E | Exhausted | PoolsUnavailable, R>
    /** Starts the walk that `run` makes, for callers that record and close each attempt themselves. */
    readonly walk: (plan: PlannedRequest) => Walk
    /** Passes a plan's verdicts, its `providers`, to `show` in the account's turn; fails at the request's deadline. */
    readonly verdicts: <A>(
      plan: PlannedRequest,
      show: (providers: Plan["providers"]) => A
    ) => Effect.Effect<A, ServiceUnavailable>
    /**
     * Replaces the key of a lease by the id of its credential, in every encoding that upstreams repeat. Call it before
     * the lease ends. Without a lease, returns the text unchanged: `redactKey` replaces the key of shared capacity.
     */
    readonly redact: (text: string, lease: Lease | undefined) => string
  }
>()("byok/Router") {
  static readonly layer: Layer.Layer<
    Router,
    never,
    Cipher | CredentialPools | CredentialUse | MemoryBudget | Parkings | RequestTimeout | TokensOnly
  > = Layer.provide(
    Layer.suspend(() => Layer.effect(this, make)),
    [Pools.layer, Tokens.layer]
  )
}

/** Maximum age of the pools from which a key is leased, in milliseconds, unless its plan allows more (Q19). */
const leaseFreshness = 1000

/** Credentials that a search examines before it waits for the turn of its account: about 0.1 ms. */
const maxExamined = 256

/** Pools in the order of the requested providers; none if the workspace is gone, or the API key may no longer route. */
type PoolSnapshots = Pick<WorkspacePools, "snapshots">

type KeyFailure = UnknownApiKey | ApiKeyMayNotRoute | UnknownWorkspace

/** A request without the account and workspace that the database resolves. */
type UnresolvedRequest = Omit<RoutingRequest, "account_id" | "workspace_id">

/** `credential_id` is set by a request that tests one credential: it uses no other one, and no shared capacity. */
type CredentialFilter = Pick<RoutingRequest, "credential_id">

const millisOf = (freshness: Freshness) =>
  freshness === "now" ? 0 : Math.min(Duration.toMillis(freshness), longestFreshness)

const providersOf = ({ targets }: UnresolvedRequest) => targets.map(({ provider }) => provider)

const targetsFor = ({
  credential_id,
  targets
}: Pick<RoutingRequest, "targets"> & CredentialFilter): RoutingRequest["targets"] =>
  credential_id === undefined
    ? targets
    : targets.map(({ endpoint, provider }) => ({ provider, endpoint: { ...endpoint, shared: false } }))

const poolFor = ({ credential_id }: CredentialFilter, snapshot: Snapshot | undefined): Pool => {
  if (credential_id === undefined) return snapshot?.pool ?? []
  const member = snapshot?.byId.get(credential_id)
  return member === undefined ? [] : [member]
}

/** Availability of a key. A test of one credential ignores its cooldowns, but not a leak. */
const availabilityFor = (
  { credential_id }: CredentialFilter,
  health: Health,
  { leaked }: PooledCredential,
  now: Moment
) => (credential_id === undefined || leaked ? availabilityOf(health, leaked, now) : ({ _tag: "Free" } as const))

const versionsOf = ({ snapshots }: PoolSnapshots) => snapshots.map(({ version }) => version).join()

/** Whether the database is away or overloaded, perhaps for only one of several pools. Any other cause is a defect. */
const isUnavailable = ({ reasons }: Cause.Cause<unknown>) =>
  reasons.some((reason) => {
    const failure = Cause.isFailReason(reason) ? reason.error : Cause.isDieReason(reason) ? reason.defect : undefined
    return failure instanceof ServiceUnavailable || failure instanceof DatabaseFailure
  })

const orUnavailable = <A, E>(effect: Effect.Effect<A, ServiceUnavailable | E>) =>
  Effect.catchCauseIf(effect, isUnavailable, () => new PoolsUnavailable()) as Effect.Effect<A, PoolsUnavailable | E>

/** Returns no pools if the API key is revoked or may not route, or the workspace is gone. */
const orNoPools = (pools: Effect.Effect<WorkspacePools, ServiceUnavailable | KeyFailure>) =>
  Effect.catchTag(
    orUnavailable(pools),
    ["UnknownApiKey", "ApiKeyMayNotRoute", "UnknownWorkspace"],
    (): Effect.Effect<PoolSnapshots> => Effect.succeed({ snapshots: [] })
  )

const make = Effect.gen(function* () {
  const { current, currentForKey, inTurn, reread, throttled } = yield* Pools
  const { read, verify } = yield* Cipher
  const tokens = yield* Tokens
  const tokensOnly = yield* TokensOnly
  const metered = yield* makeRouterMeter
  const { health, uses } = yield* makeLedgers(metered.countParking, metered.countLost)
  const clock = yield* Clock.Clock

  const planWithin = (request: RoutingRequest, freshness: number) =>
    planOn(current(request, providersOf(request), freshness), request, freshness)

  const planNamed = ({ api_key_hash, ...request }: RoutingRequest, freshness: number) =>
    api_key_hash === null
      ? planWithin({ ...request, api_key_hash }, freshness)
      : planForKey({ ...request, api_key_hash }, freshness)

  const planForKey = (request: KeyRequest, freshness: number) =>
    Effect.suspend(() => {
      const key = { api_key_hash: request.api_key_hash, confirmed_at: monotonicMillis(clock) }
      return planOn(currentForKey(request, providersOf(request)), request, freshness, key)
    })

  /**
   * Plans a request on `pools`, which also name its account and workspace. Searches the first step at once, and
   * computes the rest of the plan when it is first read.
   */
  const planOn = <E>(
    pools: Effect.Effect<WorkspacePools, ServiceUnavailable | E>,
    unresolved: UnresolvedRequest,
    freshness: number,
    key?: PlannedRequest["key"]
  ): Effect.Effect<PlannedRequest, PoolsUnavailable | E> => {
    const planned = Effect.flatMap(pools, (workspacePools) => {
      const { account_id, snapshots, workspace_id } = workspacePools
      const request = { ...unresolved, targets: targetsFor(unresolved), account_id, workspace_id }
      let computed: Plan | undefined
      const compute = () => {
        const { availabilityOf, poolOfProvider } = inputsOf(request, workspacePools)
        return planFor(request, poolOfProvider, availabilityOf)
      }
      const plan = () => (computed ??= compute())
      return Effect.mapEager(
        findStep(request, workspacePools, searchStart, () => true),
        ({ position, step }) => ({
          request,
          freshness,
          key,
          isEmpty: step === undefined,
          members: snapshots.reduce((sum, { pool }) => sum + pool.length, 0),
          start: { versions: versionsOf(workspacePools), position },
          get steps() {
            return plan().steps
          },
          get providers() {
            return plan().providers
          },
          get retry_at() {
            return plan().retry_at
          }
        })
      )
    })
    return orUnavailable(planned)
  }

  /** Finds the first wanted step from a position on. A search of many credentials waits for the turn of its account. */
  const findStep = (
    request: PlannedRequest["request"],
    pools: PoolSnapshots,
    from: SearchPosition,
    isWanted: Search["isWanted"]
  ): Effect.Effect<SearchResult, PoolsUnavailable> => {
    const { availabilityOf, poolOfProvider } = inputsOf(request, pools)
    const search = { request, poolOfProvider, availabilityOf, isWanted, onExcluded: metered.countExclusions }
    const first = nextStep(search, from, maxExamined)
    if (!first.isPaused) return Effect.succeed(first)
    const continueFrom = ({ position }: SearchResult) => throttled(() => nextStep(search, position, maxExamined))
    const rest = Effect.gen(function* () {
      let result = yield* continueFrom(first)
      while (result.isPaused) result = yield* continueFrom(result)
      return result
    })
    return orUnavailable<SearchResult, never>(inTurn(request.account_id, rest))
  }

  /** The inputs of a plan: the pools of its request, and the availability of their keys as of now. */
  const inputsOf = (request: RoutingRequest, { snapshots }: PoolSnapshots) => {
    const now = momentOf(clock)
    const providers = providersOf(request)
    return {
      poolOfProvider: (provider: Provider) => poolFor(request, snapshots[providers.indexOf(provider)]),
      availabilityOf: (member: PooledCredential) =>
        availabilityFor(request, healthOf(request, member, now.monotonic), member, now)
    }
  }

  /** Health of a key, joined from the database's cooldowns and this process's reports. */
  const healthOf = ({ account_id, model }: RoutingRequest, member: PooledCredential, now: number): Health => {
    const { credential, key_version, stored } = member
    return health.healthOf({ account_id, credential_id: credential.id, key_version, model }, stored, now)
  }

  /**
   * Reads the pools from which to search for a step, or to lease its key. Looks the request's API key up again, if it
   * has one, once its last confirmation is more than a second old.
   */
  const readPools = ({ freshness, key, request }: ResolvedRequest, providers: ReadonlyArray<Provider>) =>
    Effect.suspend(() => {
      const now = monotonicMillis(clock)
      if (key === undefined || now < key.confirmed_at + leaseFreshness)
        return orNoPools(current(request, providers, Math.max(leaseFreshness, freshness)))
      const { account_id, workspace_id } = request
      const confirmed = currentForKey({ api_key_hash: key.api_key_hash, account_id, workspace_id }, providers)
      return orNoPools(Effect.tap(confirmed, () => Effect.sync(() => void (key.confirmed_at = now))))
    })

  /** Makes a search that continues after the previous step, or restarts if a pool has changed since. */
  const search: RouterOperations["search"] = (plan) => {
    const { request, start } = plan
    const providers = providersOf(request)
    let { position, versions } = start
    const pools = readPools(plan, providers)
    return {
      restart: () => void (position = searchStart),
      next: (isWanted) =>
        Effect.flatMap(pools, (snapshots) => {
          const newVersions = versionsOf(snapshots)
          if (newVersions !== versions) position = searchStart
          versions = newVersions
          return Effect.mapEager(
            findStep(request, snapshots, position, isWanted),
            ({ position: newPosition, step }) => {
              position = newPosition
              return step
            }
          )
        })
    }
  }

  const leaseInScope: Router["Service"]["lease"] = (plan, step) =>
    Effect.suspend(() => {
      let lease: Lease | undefined
      const releaseAtEnd = Effect.addFinalizer(() =>
        Effect.sync(() => {
          if (lease !== undefined) release(lease)
        })
      )
      return Effect.andThen(
        releaseAtEnd,
        leaseStep(plan, step, (opening) => void (lease = opening))
      )
    })

  const leaseStep: RouterOperations["lease"] = (resolved, step, onLease) =>
    metered.lease(
      Effect.flatMap(readPools(resolved, [step.provider]), ({ snapshots: [snapshot] }) =>
        leaseFrom(snapshot, resolved, step, onLease)
      )
    )

  /**
   * Leases the key of a step if its row is the planned one and the key is not parked. If the key is on trial, claims
   * the trial, or refuses if another lease has it.
   */
  const leaseFrom = (
    snapshot: Snapshot | undefined,
    resolved: ResolvedRequest,
    step: OwnStep,
    onLease: (lease: Lease) => void
  ): Effect.Effect<Lease, LeaseRefused | PoolsUnavailable> => {
    const { credential_id, key_version, provider, region, row } = step
    const { request } = resolved
    const member = snapshot?.byId.get(credential_id)
    if (member?.row !== row) return Effect.fail(new LeaseRefused({ reason: "changed" }))
    const now = momentOf(clock)
    const healthNow = healthOf(request, member, now.monotonic)
    if (availabilityFor(request, healthNow, member, now)._tag === "Parked") {
      return Effect.fail(new LeaseRefused({ reason: "parked" }))
    }
    const { account_id, model } = request
    const { label } = member.credential
    const keys = tokensOnly ? "tokens" : (request.keys ?? "as_stored")
    const terms = { account_id, credential_id, key_version, label, provider, model, region, keys, leased_at: now.wall }
    const lease = new Lease(terms, healthNow)
    if (request.credential_id === undefined && !health.claimTrial(terms, healthNow, lease, now.monotonic)) {
      return Effect.fail(new LeaseRefused({ reason: "on_trial" }))
    }
    onLease(lease)
    return onEnd(openInto(lease, resolved, step, member), (exit) => {
      if (Exit.isFailure(exit)) release(lease)
    })
  }

  const openInto = (lease: Lease, { request }: ResolvedRequest, step: OwnStep, member: Snapshot["pool"][number]) =>
    Effect.matchEffect(fillLease(lease, request, member), {
      onSuccess: () => {
        uses.recordLease(lease.terms)
        return Effect.succeed(lease)
      },
      onFailure: (failure): Effect.Effect<never, LeaseRefused | PoolsUnavailable> => {
        if (failure._tag === "LeaseRefused" || failure._tag === "PoolsUnavailable") return Effect.fail(failure)
        const refused = new LeaseRefused({ reason: sealStatusByError[failure._tag] })
        return failure._tag === "UnknownKeyId" ? refuseAfterReread(refused, request, step) : Effect.fail(refused)
      }
    })

  /**
   * Reads the pool again, because the row may have been rewrapped under a known KEK. Fails with `changed` if the row
   * has changed, otherwise with `refused`.
   */
  const refuseAfterReread = (
    refused: LeaseRefused,
    request: PlannedRequest["request"],
    { credential_id, provider, row }: OwnStep
  ) =>
    Effect.matchEffect(orUnavailable(reread(request, provider)), {
      onFailure: () => Effect.fail(refused),
      onSuccess: ({ snapshots: [snapshot] }) => {
        const isSameRow = snapshot?.byId.get(credential_id)?.row === row
        return Effect.fail(isSameRow ? refused : new LeaseRefused({ reason: "changed" }))
      }
    })

  /**
   * Fills a lease with the key, or with a token that the key signs if the request wants tokens. Uses a cached token
   * only after `verify` proves that the key is still sealed to its credential and settings; otherwise wipes the token.
   */
  const fillLease = (
    lease: Lease,
    { account_id }: PlannedRequest["request"],
    { credential, sealed }: Snapshot["pool"][number]
  ): Effect.Effect<void, OpenFailure | LeaseRefused | PoolsUnavailable> => {
    const { terms } = lease
    const context = contextOf({ ...credential, account_id })
    const asStored = Effect.suspend(() => Effect.fromResult(read(sealed, context, (key) => lease.fill(key))))
    if (terms.keys === "as_stored" || !signsTokens(terms.provider)) return asStored
    const fill: Lease["fill"] = (key, token) => lease.fill(key, token)
    const signing = Effect.suspend(() =>
      Effect.flatten(Effect.fromResult(read(sealed, context, (key) => tokens.sign(terms, key, fill))))
    )
    const signed = Effect.flatMap(
      Effect.catchTag(signing, "ServiceUnavailable", () => new PoolsUnavailable()),
      (hasSigned): Effect.Effect<void, OpenFailure | LeaseRefused> => {
        if (hasSigned) return Effect.void
        return tokensOnly ? new LeaseRefused({ reason: "no_token" }) : asStored
      }
    )
    if (!tokens.isCached(terms)) return signed
    const verified = verify(sealed, context)
    if (Result.isSuccess(verified) && tokens.open(terms, fill)) return Effect.void
    tokens.wipe(terms.credential_id)
    return Result.isFailure(verified) ? Effect.fail(verified.failure) : signed
  }

  /** Applies the outcome of a lease to the health and last use of its key; the lease stays open. */
  const report = (lease: Lease, outcome: Outcome) => {
    releaseTrial(lease)
    health.report(lease.terms, lease.health, outcome)
    uses.recordOutcome(lease.terms, outcome, clock.currentTimeMillisUnsafe())
  }

  const end = (lease: Lease, outcome: Outcome) => {
    report(lease, outcome)
    lease.wipe()
  }

  const release = (lease: Lease) => {
    lease.wipe()
    releaseTrial(lease)
  }

  const releaseTrial = (lease: Lease) => health.releaseTrial(lease.terms, lease.health, lease)

  /** When to retry a request that failed, from pools of any age if they are cached; null if unknown. */
  const retryAt: RouterOperations["retryAt"] = ({ request }) =>
    planWithin(request, Number.POSITIVE_INFINITY).pipe(
      Effect.flatMap((plan) =>
        inTurn(
          request.account_id,
          throttled(() => plan.retry_at)
        )
      ),
      Effect.orElseSucceed(() => null)
    )

  const walk = makeWalk({ end, lease: leaseStep, retryAt, search })

  return Router.of({
    plan: (request, freshness = "now") => metered.plan(planNamed(request, millisOf(freshness))),
    planForKey: (request, freshness = "now") => metered.plan(planForKey(request, millisOf(freshness))),
    lease: leaseInScope,
    report: (lease, outcome) => Effect.sync(() => report(lease, outcome)),
    run: runPlan(walk),
    walk,
    verdicts: (plan, show) =>
      inTurn(
        plan.request.account_id,
        Effect.flatMap(
          throttled(() => plan.providers),
          (providers) => throttled(() => show(providers))
        )
      ),
    redact: (text, lease) => lease?.redact(text) ?? text
  })
})
