import { randomUUID } from "node:crypto"
import { Cause, Clock, Context, Duration, Effect, Layer, Scope } from "effect"
import type { CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import { availabilityOf, momentOf } from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { type Past, type Refusal, remainingAfter, type Tried } from "../../domain/routing/Past.ts"
import { decisionsOn, planFor } from "../../domain/routing/planFor.ts"
import { longestFreshness, type RoutingRequest } from "../../domain/routing/RoutingRequest.ts"
import type { Cipher } from "../../port/Cipher.ts"
import type { CredentialPools } from "../../port/CredentialPools.ts"
import type { CredentialUse } from "../../port/CredentialUse.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import type { Parkings } from "../../port/Parkings.ts"
import type { RequestTimeout } from "../../runtime/Deadline.ts"
import type { MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { Tokens, type TokensOnly } from "../tokens/Tokens.ts"
import { makeDatabaseClock } from "./DatabaseClock.ts"
import type { Lease } from "./Lease.ts"
import { makeLedgers } from "./ledgers.ts"
import { makeOpenKey } from "./makeOpenKey.ts"
import type { AttemptedKey, AttemptOptions, NextAttempt, OpenAttempt, OpenNext } from "./NextAttempt.ts"
import type { Member } from "./members.ts"
import { Pools, type Snapshot, type WorkspacePools } from "./Pools.ts"
import { AnotherAccount, type Exhausted, type PlanFailure, PoolsUnavailable } from "./RouterErrors.ts"
import { makeRouterMeter } from "./RouterMeter.ts"
import type { Freshness, KeyRequest, RequestPlan, ResolvedRequest, RouterRequest } from "./RouterRequest.ts"
import { type Attempt, makeRun } from "./run.ts"

/*
 * How to think about this folder.
 *
 * A request names a workspace, a model and the providers that may serve it. Its keys are in pools, one for each provider
 * of a workspace. A pool is small (`MAX_CREDENTIALS`), so `Pools` reads it whole, keeps it as a `Snapshot`, and asks the
 * database before each use whether it is still the newest. The domain decides: `decisionsOn` puts the keys of snapshots
 * in order and says why it leaves one out. A plan lists all decisions; an attempt takes the first key that opens.
 *
 * Nothing is kept of a request between its attempts. Its past (what was tried, and with which outcome) goes with it: in
 * a variable of `run` in process, in a text with a MAC (`attemptText`) over the socket. `nextAttempt` plans again and
 * leaves out what was tried, so any instance can go on with a request, and the next attempt respects the newest changes.
 *
 * What upstreams refuse is the only state. `HealthState` holds cooldowns for a key or for one of its models, and the
 * trials: after a cooldown, one request tries the key while others pass it by. Two cooldowns join to the same one in any
 * order, so reports may be late, repeated or lost. `ledgers` stores cooldowns and last uses in the background, by
 * `makeWriteBehind`; other instances see them with the pool. Times that leave the process are the database's
 * (`DatabaseClock`).
 *
 * An opened key is a `Lease`: a buffer that is zeroed when the attempt ends. `makeOpenKey` opens it from the snapshot
 * that was planned with. `Attempts` is all of this for the socket, `Explanations` for people who ask why.
 */

/**
 * Chooses keys for requests to model providers, in process or for gateways. The tenants' HTTP API does not reach it. A
 * request is planned anew for each of its attempts, without the steps that it has tried: its credentials' keys (own
 * steps) and the operator's (shared capacity). A lease is the opened key of an attempt. An upstream's refusal parks the
 * key; afterwards one request at a time tries it (trial).
 *
 * Invariant: plan and lease of an attempt are of the same snapshot, so a key opens only if its row, as recent as the
 * request demands, allows the request.
 */
export class Router extends Context.Service<
  Router,
  {
    /**
     * Plans the attempts for a request. With `now`, the default, the plan respects every change acknowledged on any
     * instance before the call. With a duration of up to ten minutes, it may use snapshots that the database confirmed
     * within that time, even while the database is away; but an API key is always looked up.
     */
    readonly plan: (request: RouterRequest, freshness?: Freshness) => Effect.Effect<RequestPlan, PlanFailure>
    /**
     * Opens the next attempt of a request after its past, until the scope closes. Report each attempt before that.
     */
    readonly nextAttempt: OpenNext
    /**
     * Reports the outcome of an attempt, and when the upstream answered, in the database's time; by default now. It
     * applies here at once, and in other processes once it is stored. A repeated report changes nothing.
     */
    readonly report: (attempt: AttemptedKey, outcome: Outcome, answered_at?: number) => Effect.Effect<void>
    /**
     * Attempts and reports one step after another until an attempt gives an answer to return. Shared steps have no
     * lease. A lease ends with its attempt, perhaps before the answer's body.
     */
    readonly run: <A, E, R>(
      request: RouterRequest,
      attempt: Attempt<A, E, R>,
      freshness?: Freshness
    ) => Effect.Effect<A, E | Exhausted | PlanFailure, R>
    /** The database's time in milliseconds since 1970; the machine's until the first `synchronize` succeeds. */
    readonly timeAt: (monotonic?: number) => number
    /** Asks the database for its time, unless it has told that before. */
    readonly synchronize: Effect.Effect<void>
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

/** Milliseconds until a retry, if another request is trying a key. */
const retrySoon = 1000

const millisOf = (freshness: Freshness) =>
  freshness === "now" ? 0 : Math.min(Duration.toMillis(freshness), longestFreshness)

/** `credential_id` is set by a request that tests one credential: it uses no other one, and no shared capacity. */
const targetsFor = ({ credential_id, targets }: Pick<RoutingRequest, "credential_id" | "targets">) =>
  credential_id === undefined
    ? targets
    : targets.map(({ endpoint, provider }) => ({ provider, endpoint: { ...endpoint, shared: false } }))

/** Whether a request names an API key, which is looked up each time. */
const isOfKey = (request: RouterRequest): request is KeyRequest => request.api_key_hash !== null

/** Whether the database failed or is overloaded, perhaps for only one of several pools that are read together. */
const isUnavailable = ({ reasons }: Cause.Cause<{ readonly _tag: string }>) =>
  reasons.some(
    (reason) =>
      Cause.isFailReason(reason) &&
      (reason.error._tag === "ServiceUnavailable" || reason.error._tag === "DatabaseFailure")
  )

const orUnavailable = <A, E extends { readonly _tag: string }>(effect: Answer<A, E>) =>
  Effect.catchCauseIf(effect, isUnavailable, () => new PoolsUnavailable()) as Effect.Effect<A, PoolsUnavailable | E>

/** The credential alone, if the pool has it. */
const memberOf = (pool: Snapshot | undefined, id: CredentialId): ReadonlyArray<Member> => {
  const member = pool?.byId.get(id)
  return member === undefined ? [] : [member]
}

/** Whether another request is trying the key. */
const isOnTrial = ({ result }: Tried) => result === "on_trial"

const make = Effect.gen(function* () {
  const { current, currentForKey, expire } = yield* Pools
  const { synchronize, timeAt, toMonotonic } = yield* makeDatabaseClock
  const metered = yield* makeRouterMeter
  const { health, uses } = yield* makeLedgers(metered.countParking, metered.countLost)
  const openKey = yield* makeOpenKey(health, uses.recordLease)
  const clock = yield* Clock.Clock

  /** Reads the pools of a request. They also name its account and workspace. */
  const readPools = (request: RouterRequest, freshness: Freshness): Effect.Effect<WorkspacePools, PlanFailure> => {
    const providers = request.targets.map(({ provider }) => provider)
    const pools: Answer<WorkspacePools, Exclude<PlanFailure, PoolsUnavailable>> = isOfKey(request)
      ? currentForKey(request, providers)
      : current(request, providers, millisOf(freshness))
    return orUnavailable(pools)
  }

  /** The inputs of a plan: a request, its pools, and the availability of their keys as of now. */
  const inputsOf = (unresolved: RouterRequest, { account_id, snapshots, workspace_id }: WorkspacePools) => {
    const request: ResolvedRequest = { ...unresolved, targets: targetsFor(unresolved), account_id, workspace_id }
    const { credential_id, model, targets } = request
    const pools = new Map(targets.map(({ provider }, n) => [provider, snapshots[n]]))
    const moment = momentOf(clock)
    return {
      request,
      poolOf: (provider: Provider): ReadonlyArray<Member> => {
        const pool = pools.get(provider)
        return credential_id === undefined ? (pool?.pool ?? []) : memberOf(pool, credential_id)
      },
      /** A test of one credential ignores its cooldowns, but not a leak. */
      availabilityOf: ({ credential, key_version, leaked, stored }: Member) => {
        if (credential_id !== undefined && !leaked) return { _tag: "Free" } as const
        const key = { account_id, credential_id: credential.id, key_version, model }
        return availabilityOf(health.healthOf(key, stored, moment.monotonic), leaked, moment)
      }
    }
  }

  const nextAttempt = Effect.fnUntraced(function* (
    unresolved: RouterRequest,
    past: Past,
    { account_id, freshness = "now", keepTrial = false, mustSign = false, request_id = randomUUID() }: AttemptOptions
  ): Effect.fn.Return<NextAttempt, PlanFailure | AnotherAccount, Scope.Scope> {
    let lease: Lease | undefined
    const end = Effect.sync(() => {
      lease?.wipe()
      if (lease !== undefined && !keepTrial) health.releaseTrial(lease.terms, lease.health)
    })
    // Unlike `Effect.addFinalizer`, copies no context.
    yield* Scope.addFinalizer(yield* Effect.scope, end)
    let inputs = inputsOf(unresolved, yield* readPools(unresolved, freshness))
    if (account_id !== undefined && inputs.request.account_id !== account_id) return yield* new AnotherAccount()
    let tried = past
    let mayReread = true
    const found = (attempt: OpenAttempt | undefined): NextAttempt => {
      const { poolOf, request } = inputs
      const plan = () => planFor(inputs)
      const credentials = request.targets.reduce((sum, { provider }) => sum + poolOf(provider).length, 0)
      if (attempt !== undefined) return { attempt, request, past: tried, credentials, plan, retry_at: null }
      const { retry_at } = plan()
      const isSoon = tried.slice(past.length).some(isOnTrial)
      const soonest = isSoon ? Math.min(retry_at ?? Infinity, clock.currentTimeMillisUnsafe() + retrySoon) : retry_at
      return { attempt, request, past: tried, credentials, plan, retry_at: soonest }
    }
    search: for (;;) {
      let isRemaining = remainingAfter(tried)
      for (const decision of decisionsOn(inputs)) {
        if (decision._tag === "Own") metered.countExclusions(decision.exclusions)
        if (decision.step === undefined || !isRemaining(decision.step)) continue
        if (decision._tag === "Shared") return found({ step: decision.step, lease: undefined })
        const { member, provider, step } = decision
        const opening = openKey(inputs.request, step, member, { mustSign, request_id }, (opening) => (lease = opening))
        const opened = yield* orUnavailable<Lease | Refusal, never>(opening)
        metered.countLease(typeof opened === "string" ? opened : "ok")
        if (typeof opened !== "string") return found({ step, lease: opened })
        if (opened === "unknown_key" && mayReread) {
          // The row may have been rewrapped under a known KEK.
          mayReread = false
          expire(inputs.request, provider)
          inputs = inputsOf(unresolved, yield* readPools(unresolved, "now"))
          continue search
        }
        tried = [...tried, { provider, credential_id: member.credential.id, result: opened }]
        isRemaining = remainingAfter(tried)
      }
      return found(undefined)
    }
  })

  const report = ({ health: atLease, terms }: AttemptedKey, outcome: Outcome, answered_at = Infinity) => {
    const { monotonic, wall } = momentOf(clock)
    const at = Math.min(toMonotonic(answered_at), monotonic)
    metered.countOutcome(terms.provider, outcome)
    health.releaseTrial(terms, atLease)
    health.report(terms, atLease, outcome, at)
    uses.recordOutcome(terms, outcome, wall - (monotonic - at))
  }

  const openNext: OpenNext = (request, past, options = {}) =>
    metered.plan(nextAttempt(request, past, options), ({ attempt }) => attempt === undefined)

  return Router.of({
    plan: (request, freshness = "now") =>
      metered.plan(
        Effect.map(readPools(request, freshness), (pools): RequestPlan => {
          const inputs = inputsOf(request, pools)
          return { ...planFor(inputs), request: inputs.request }
        }),
        ({ steps }) => steps.length === 0
      ),
    nextAttempt: openNext,
    report: (...reported) => Effect.sync(() => report(...reported)),
    run: makeRun(openNext, report),
    timeAt,
    synchronize,
    redact: (text, lease) => lease?.redact(text) ?? text
  })
})
