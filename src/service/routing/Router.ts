import { Cause, Clock, Context, Duration, Effect, Exit, Layer, type Scope } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { availabilityOf, type Health } from "../../domain/routing/Health.ts"
import { type Moment, momentOf } from "../../domain/routing/Moment.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Plan, Step } from "../../domain/routing/Plan.ts"
import { planFor } from "../../domain/routing/planFor.ts"
import type { Pool, PooledCredential } from "../../domain/routing/Pool.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"
import * as AtHand from "../../port/AtHand.ts"
import { Cipher } from "../../port/Cipher.ts"
import type { CredentialPools } from "../../port/CredentialPools.ts"
import type { CredentialUse } from "../../port/CredentialUse.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { Parkings } from "../../port/Parkings.ts"
import { Lease } from "./Lease.ts"
import { makeHealthLedger } from "./makeHealthLedger.ts"
import { makePlanCache } from "./makePlanCache.ts"
import { makeUseLedger } from "./makeUseLedger.ts"
import type { Freshness, KeyRequest, PlannedRequest } from "./PlannedRequest.ts"
import { Pools, sealStatusByError, type Snapshot, type WorkspacePools } from "./Pools.ts"
import {
  type Exhausted,
  LeaseRefused,
  PoolsUnavailable,
  type UnknownApiKey,
  type UnknownWorkspace
} from "./RouterErrors.ts"
import { makeRouterMeter } from "./RouterMeter.ts"
import { type Attempt, makeWalk, type RouterOperations, runPlan, type Walk } from "./Walk.ts"

/** How old what a lease goes by may be, in milliseconds, or as old as its plan's if that is more (Q19). */
const leaseFreshness = 1000

/** The database cannot be asked, or is asked too much. Anything else is a defect. */
const isUnavailable = (cause: Cause.Cause<unknown>) => {
  const failure = Cause.squash(cause)
  return failure instanceof ServiceUnavailable || failure instanceof DatabaseFailure
}

const millisOf = (freshness: Freshness) => (freshness === "now" ? 0 : Duration.toMillis(freshness))

type Alone = Pick<RoutingRequest, "credential_id">

/** A request for one credential asks whether that works: nothing stands in for it, and only a leak keeps it parked. */
const targetsOf = ({ credential_id, targets }: Pick<RoutingRequest, "targets"> & Alone): RoutingRequest["targets"] =>
  credential_id === undefined
    ? targets
    : targets.map(({ endpoint, provider }) => ({ provider, endpoint: { ...endpoint, shared: false } }))

const poolFrom = (pool: Pool, { credential_id }: Alone): Pool =>
  credential_id === undefined ? pool : pool.filter(({ credential }) => credential.id === credential_id)

const availabilityTo = ({ credential_id }: Alone, health: Health, { leaked }: PooledCredential, now: Moment) =>
  credential_id === undefined || leaked ? availabilityOf(health, leaked, now) : ({ _tag: "Free" } as const)

type Asked = Omit<RoutingRequest, "account_id" | "workspace_id">

const providersOf = ({ targets }: Asked) => targets.map(({ provider }) => provider)

const ifUnavailable = <E>(cause: Cause.Cause<ServiceUnavailable | E>): Effect.Effect<never, PoolsUnavailable | E> =>
  isUnavailable(cause) ? Effect.fail(new PoolsUnavailable()) : Effect.failCause(cause as Cause.Cause<E>)

const orUnavailable = <A, E>(pools: Effect.Effect<A, ServiceUnavailable | E>): Effect.Effect<A, PoolsUnavailable | E> =>
  AtHand.catchCause(pools, ifUnavailable<E>)

type Found = Pick<WorkspacePools, "snapshots">

const nothingIfUnknown = (error: UnknownWorkspace | PoolsUnavailable): Effect.Effect<Found, PoolsUnavailable> =>
  error._tag === "UnknownWorkspace" ? Effect.succeed({ snapshots: [] }) : Effect.fail(error)

const firstOf = ({ snapshots: [first] }: Found) => first

const make = Effect.gen(function* () {
  const { current, ofKey, reread } = yield* Pools
  const { read } = yield* Cipher
  const metered = yield* makeRouterMeter
  const ledger = yield* makeHealthLedger(metered.parked)
  const uses = yield* makeUseLedger
  const planCache = makePlanCache<Plan>(ledger.changes)
  const clock = yield* Clock.Clock

  const healthOf = ({ account_id, model }: RoutingRequest, pooled: PooledCredential, now: number): Health => {
    const { credential, key_version, stored } = pooled
    return ledger.healthOf({ account_id, credential_id: credential.id, key_version, model }, stored, now)
  }

  /** Plans anew, and keeps the plan. */
  const planAnew = (
    request: RoutingRequest,
    { snapshots }: WorkspacePools,
    known: ReadonlyArray<Snapshot>,
    now: Moment
  ): Plan => {
    const availability = (pooled: PooledCredential) =>
      availabilityTo(request, healthOf(request, pooled, now.monotonic), pooled, now)
    const { keep, noting } = planCache.begin(request, known, now)
    const providers = providersOf(request)
    const poolOf = (provider: Provider) => poolFrom(snapshots[providers.indexOf(provider)]?.pool ?? [], request)
    return keep(planFor(request, poolOf, noting(availability)))
  }

  const planned = (asked: Asked, freshness: number, found: WorkspacePools): PlannedRequest => {
    const now = momentOf(clock)
    const { account_id, snapshots, workspace_id } = found
    const request = { ...asked, targets: targetsOf(asked), account_id, workspace_id }
    const known = asked.credential_id === undefined ? snapshots : []
    const plan = planCache.find(request, known, now) ?? planAnew(request, found, known, now)
    return { ...plan, request, freshness }
  }

  const planFrom = <E>(
    asked: Asked,
    freshness: number,
    pools: Effect.Effect<WorkspacePools, ServiceUnavailable | E>
  ): Effect.Effect<PlannedRequest, PoolsUnavailable | E> =>
    AtHand.map(orUnavailable(pools), (found) => planned(asked, freshness, found))

  const planWithin = (asked: RoutingRequest, freshness: number) =>
    planFrom(asked, freshness, current(asked, providersOf(asked), freshness))

  /** The pool that a step is checked against; undefined if its workspace is gone. */
  const poolFor = ({ freshness, request }: PlannedRequest, { provider }: Step) =>
    AtHand.map(
      AtHand.catchError(
        orUnavailable(current(request, [provider], Math.max(leaseFreshness, freshness))),
        nothingIfUnknown
      ),
      firstOf
    )

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

  /** Opens the key of a planned row into a lease. If its KEK is gone, the row may have been rewrapped since: then it has changed. */
  const opened = (
    lease: Lease,
    { request }: PlannedRequest,
    { credential_id, provider, row }: OwnStep,
    { credential, sealed }: Snapshot["pool"][number]
  ): Effect.Effect<Lease, LeaseRefused> => {
    const fill = (key: Buffer) => {
      lease.fill(key)
      uses.leased(lease.terms)
      return lease
    }
    return AtHand.catchError(read(sealed, { ...credential, account_id: request.account_id }, fill), (failure) => {
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
    plan: PlannedRequest,
    step: OwnStep,
    snapshot: Snapshot | undefined,
    made: (lease: Lease) => void
  ): Effect.Effect<Lease, LeaseRefused> => {
    const { credential_id, key_version, provider, region, row } = step
    const pooled = snapshot?.byId.get(credential_id)
    if (pooled?.row !== row) return Effect.fail(new LeaseRefused({ reason: "changed" }))
    const now = momentOf(clock)
    const { account_id, model } = plan.request
    const health = healthOf(plan.request, pooled, now.monotonic)
    if (availabilityTo(plan.request, health, pooled, now)._tag === "Parked") {
      return Effect.fail(new LeaseRefused({ reason: "parked" }))
    }
    const { label } = pooled.credential
    const terms = { account_id, credential_id, key_version, label, provider, model, region, leased_at: now.wall }
    const lease = new Lease(terms, health)
    if (plan.request.credential_id === undefined && !ledger.admit(terms, health, lease, now.monotonic)) {
      return Effect.fail(new LeaseRefused({ reason: "on_trial" }))
    }
    made(lease)
    return AtHand.onExit(opened(lease, plan, step, pooled), (exit) => {
      if (Exit.isFailure(exit)) release(lease)
    })
  }

  const leaseOf: RouterOperations["lease"] = (plan, step, made) =>
    metered.lease(AtHand.flatMap(poolFor(plan, step), (snapshot) => leaseFrom(plan, step, snapshot, made)))

  const lease = (plan: PlannedRequest, step: OwnStep) =>
    Effect.suspend(() => {
      let lease: Lease | undefined
      const released = Effect.addFinalizer(() =>
        Effect.sync(() => {
          if (lease !== undefined) release(lease)
        })
      )
      const leased = Effect.suspend(() => leaseOf(plan, step, (made) => void (lease = made)))
      return Effect.andThen(released, leased)
    })

  /** Whether shared capacity is still allowed: by what the database says now, not by what the plan was made from. */
  const mayShare = (plan: PlannedRequest, step: Step) =>
    AtHand.map(poolFor(plan, step), (snapshot) => {
      if (snapshot === undefined) return false
      const targets = plan.request.targets.filter(({ provider }) => provider === step.provider)
      const free = () => ({ _tag: "Free" }) as const
      const { steps } = planFor({ ...plan.request, targets }, () => snapshot.pool, free)
      return steps.some(({ _tag }) => _tag === "Shared")
    })

  const replan = (plan: PlannedRequest) =>
    Effect.catchTag(planWithin(plan.request, plan.freshness), "UnknownWorkspace", () =>
      Effect.succeed<PlannedRequest>({ ...plan, steps: [] })
    )

  /** When to come back, by what this process knows. */
  const retryAt = ({ request }: PlannedRequest) =>
    Effect.match(planWithin(request, Number.POSITIVE_INFINITY), {
      onFailure: () => null,
      onSuccess: ({ retry_at }) => retry_at
    })

  const end: RouterOperations["end"] = (lease, outcome) => {
    report(lease, outcome)
    lease.wipe()
  }

  const walk = makeWalk({ end, lease: leaseOf, mayShare, replan, retryAt })

  return Router.of({
    plan: (request, freshness = "now") => metered.plan(planWithin(request, millisOf(freshness))),
    planForKey: (request, freshness = "now") =>
      metered.plan(planFrom(request, millisOf(freshness), ofKey(request, providersOf(request)))),
    lease,
    report: (lease, outcome) => Effect.sync(() => report(lease, outcome)),
    run: runPlan(walk),
    walk,
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
     * instance before this began is respected. With a duration a snapshot that the database confirmed within it is used
     * without asking, also while the database is away.
     */
    readonly plan: (
      request: RoutingRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, UnknownWorkspace | PoolsUnavailable>
    /** The same for the account of an API key, which is asked for whatever the freshness: the key may be revoked. */
    readonly planForKey: (
      request: KeyRequest,
      freshness?: Freshness
    ) => Effect.Effect<PlannedRequest, UnknownApiKey | UnknownWorkspace | PoolsUnavailable>
    /** The key of a step, wiped when the scope closes. Refused if its row is not the planned one any more. */
    readonly lease: (
      plan: PlannedRequest,
      step: OwnStep
    ) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable, Scope.Scope>
    /** What the upstream answered to an attempt with the lease. It holds here at once, and elsewhere once it is stored. */
    readonly report: (lease: Lease, outcome: Outcome) => Effect.Effect<void>
    /**
     * Attempts the steps in their order until one gives an answer to return: leases, attempts, reports. Shared steps have
     * no lease. A lease ends with its attempt, which may end when the head of the answer has arrived.
     */
    readonly run: <A, E, R>(
      plan: PlannedRequest,
      attempt: Attempt<A, E, R>
    ) => Effect.Effect<A, E | Exhausted | PoolsUnavailable, R>
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
    Layer.provide(Layer.effect(this, make), Pools.layer)
}
