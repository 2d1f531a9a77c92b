import { Clock, Effect, Exit } from "effect"
import type { CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Step } from "../../domain/routing/Plan.ts"
import type { Search } from "../../domain/routing/planFor.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import type { Lease } from "./Lease.ts"
import type { PlannedRequest, ResolvedRequest } from "./PlannedRequest.ts"
import { type Attempted, Exhausted, LeaseRefused, type PoolsUnavailable, type Refusal } from "./RouterErrors.ts"

type IsWanted = Search["isWanted"]

/** Finds the steps of a request one by one, each in the current pools. */
export interface StepSearch {
  /** The next wanted step; undefined if there is none, the workspace is gone or the API key is revoked. */
  readonly next: (isWanted: IsWanted) => Effect.Effect<Step | undefined, PoolsUnavailable>
  /** Searches from the first step again. */
  readonly restart: () => void
}

/** The operations of a router on which a walk depends. */
export interface RouterOperations {
  readonly search: (plan: PlannedRequest) => StepSearch
  /**
   * `onLease` gets the lease before its key is opened, so that the caller can end it if interrupted. On failure,
   * the lease has already ended.
   */
  readonly lease: (
    request: ResolvedRequest,
    step: OwnStep,
    onLease: (lease: Lease) => void
  ) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable>
  /** Reports the outcome of a lease and ends it. */
  readonly end: (lease: Lease, outcome: Outcome) => void
  readonly retryAt: (request: ResolvedRequest) => Effect.Effect<number | null>
}

/** The current attempt; shared steps have no lease. */
export interface OpenAttempt {
  readonly step: Step
  readonly lease: Lease | undefined
}

/** One pass over the steps of a plan, with at most one open attempt. */
export interface Walk {
  /**
   * Opens the next attempt; undefined after the last one. May be run again after a failure. Call `close` after each
   * run, even a failed one.
   */
  readonly next: Effect.Effect<OpenAttempt | undefined, PoolsUnavailable>
  /** Number of attempts recorded so far, refused leases included. */
  readonly attemptCount: () => number
  /** Ends the lease of the latest attempt, if it has one, with the attempt's outcome. */
  readonly close: (outcome: Outcome) => void
  /** Records the outcome of the open attempt. Returns true if its answer is to be returned. */
  readonly record: (attempt: OpenAttempt, outcome: Outcome) => boolean
  /** Describes the attempts, once `next` returned undefined. */
  readonly exhausted: Effect.Effect<Exhausted>
}

/** Whether the answer is to be returned; otherwise another step may do better. */
const isFinal = ({ _tag }: Outcome) => _tag === "Succeeded" || _tag === "RequestRefused" || _tag === "Abandoned"

/** Failures of a provider in a row after which a walk skips its other steps. */
const maxFailures = 2

/** Milliseconds until a retry, if another request is trying a key. */
const retrySoonMillis = 1000

/** Identifies a step by its credential, or shared capacity by its provider. */
const nameOf = (provider: Provider, credential_id: CredentialId | undefined) => credential_id ?? `${provider} shared`

const credentialOf = (step: Step) => (step._tag === "Own" ? step.credential_id : undefined)

/**
 * Makes a walk through the steps of a plan. The first time that a credential of a provider turns out to have changed,
 * the walk searches from the first step again. After a second change, or a key that does not open, it skips the
 * provider's shared capacity, which the credential may forbid. Invariant: a walk opens each step
 * at most once, in the order of the newest pools, and none after a final outcome. It keeps no pool in memory, because
 * it may take minutes.
 */
export const makeWalk =
  ({ end, lease, retryAt, search }: RouterOperations) =>
  (plan: PlannedRequest): Walk => {
    const { freshness, key, request } = plan
    const resolved: ResolvedRequest = { request, freshness, key }
    const stepSearch = search(plan)
    const attempts: Array<Attempted> = []
    /** Failures in a row. */
    const failures = new Map<Provider, number>()
    const tried = new Set<string>()
    const searchedAgain = new Set<Provider>()
    /** Providers whose shared capacity is skipped, after a second change or because a key of theirs does not open. */
    const sharedWithheld = new Set<Provider>()
    let isOver = false
    let currentLease: Lease | undefined

    const isWanted: IsWanted = (provider, credential_id) =>
      (failures.get(provider) ?? 0) < maxFailures &&
      (credential_id !== undefined || !sharedWithheld.has(provider)) &&
      !tried.has(nameOf(provider, credential_id))

    const onLease = (lease: Lease) => void (currentLease = lease)

    const markTried = (step: Step) => tried.add(nameOf(step.provider, credentialOf(step)))

    const recordRefusal = (step: OwnStep, reason: Refusal) => {
      const { provider } = step
      attempts.push({ step, result: { _tag: "Refused", reason } })
      if (reason === "changed" && !searchedAgain.has(provider)) {
        searchedAgain.add(provider)
        stepSearch.restart()
        return
      }
      if (reason !== "parked" && reason !== "on_trial") sharedWithheld.add(provider)
      markTried(step)
    }

    const openStep = (step: Step): Walk["next"] => {
      if (step._tag === "Shared") {
        markTried(step)
        return Effect.succeed({ step, lease: undefined })
      }
      return Effect.matchEffect(lease(resolved, step, onLease), {
        onSuccess: (lease) => {
          markTried(step)
          return Effect.succeed({ step, lease })
        },
        onFailure: (error) => {
          currentLease = undefined
          if (error._tag !== "LeaseRefused") return Effect.fail(error)
          recordRefusal(step, error.reason)
          return next
        }
      })
    }

    const next: Walk["next"] = Effect.suspend(() =>
      isOver
        ? Effect.undefined
        : Effect.flatMap(stepSearch.next(isWanted), (step) => (step === undefined ? Effect.undefined : openStep(step)))
    )

    return {
      next,
      attemptCount: () => attempts.length,
      close: (outcome) => {
        const lease = currentLease
        currentLease = undefined
        if (lease !== undefined) end(lease, outcome)
      },
      record: ({ step }, outcome) => {
        attempts.push({ step, result: outcome })
        const failuresInARow = outcome._tag === "UpstreamFailed" ? (failures.get(step.provider) ?? 0) + 1 : 0
        failures.set(step.provider, failuresInARow)
        isOver = isFinal(outcome)
        return isOver
      },
      exhausted: Effect.gen(function* () {
        const mayServeSoon = attempts.some(({ result }) => result._tag === "Refused" && result.reason === "on_trial")
        const retry_at = yield* retryAt(resolved)
        const now = yield* Clock.currentTimeMillis
        return new Exhausted({
          attempts,
          retry_at: mayServeSoon ? Math.min(retry_at ?? Infinity, now + retrySoonMillis) : retry_at
        })
      })
    }
  }

/** The result of an attempt. `discard` frees an answer that is not returned, such as an unread body. */
export interface AttemptResult<A> {
  readonly outcome: Outcome
  readonly value: A
  readonly discard?: Effect.Effect<void>
}

/** Sends a request to the upstream of a step; shared steps have no lease. */
export type Attempt<A, E, R> = (step: Step, lease: Lease | undefined) => Effect.Effect<AttemptResult<A>, E, R>

/** Walks a plan until an attempt gives an answer to return. */
export const runPlan = (walk: (plan: PlannedRequest) => Walk) =>
  Effect.fnUntraced(function* <A, E, R>(
    plan: PlannedRequest,
    attempt: Attempt<A, E, R>
  ): Effect.fn.Return<A, E | Exhausted | PoolsUnavailable, R> {
    const { close, record, exhausted, next } = walk(plan)

    const attemptNext = onEnd(
      Effect.flatMap(next, (opened) =>
        opened === undefined
          ? Effect.succeed(undefined)
          : Effect.map(attempt(opened.step, opened.lease), (result) => ({
              ...result,
              isLast: record(opened, result.outcome)
            }))
      ),
      // A failed attempt shows nothing about the key.
      (exit) => close(Exit.isSuccess(exit) && exit.value ? exit.value.outcome : { _tag: "Abandoned" })
    )

    for (;;) {
      const result = yield* attemptNext
      if (result === undefined) return yield* yield* exhausted
      if (result.isLast) return result.value
      if (result.discard !== undefined) yield* result.discard
    }
  })
