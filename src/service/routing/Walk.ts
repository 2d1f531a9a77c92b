import { Clock, Effect, Exit } from "effect"
import type { CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Step } from "../../domain/routing/Plan.ts"
import type { Search } from "../../domain/routing/planFor.ts"
import type { Lease } from "./Lease.ts"
import type { PlannedRequest, ResolvedRequest } from "./PlannedRequest.ts"
import { type Attempted, Exhausted, LeaseRefused, type PoolsUnavailable, type Refusal } from "./RouterErrors.ts"

/** Whether a step may be taken: one with a credential's key, or shared capacity of a provider. */
type IsWanted = Search["isWanted"]

/** Searches the steps of a request one by one, each in the pools as they are then. */
export interface StepSearch {
  /** The next step that is wanted; undefined if there is none, as when the workspace is gone or the API key revoked. */
  readonly next: (isWanted: IsWanted) => Effect.Effect<Step | undefined, PoolsUnavailable>
  /** Begins anew. */
  readonly restart: () => void
}

/** What a walk needs of the router. */
export interface RouterOperations {
  readonly search: (plan: PlannedRequest) => StepSearch
  /**
   * `made` gets the lease before its key is opened: whoever waits for it may leave, and then ends it. One that is refused has
   * ended.
   */
  readonly lease: (
    request: ResolvedRequest,
    step: OwnStep,
    made: (lease: Lease) => void
  ) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable>
  /** Tells what came of an attempt with a lease, and ends it. */
  readonly end: (lease: Lease, outcome: Outcome) => void
  readonly retryAt: (request: ResolvedRequest) => Effect.Effect<number | null>
}

/** A step that is being attempted; shared steps have no lease. */
export interface OpenAttempt {
  readonly step: Step
  readonly lease: Lease | undefined
}

/** The attempts of a plan, one after the other. */
export interface Walk {
  /**
   * Opens the next attempt; undefined after the last one. May be run again if this fails. However it ends, `close` must be
   * called before the next.
   */
  readonly next: Effect.Effect<OpenAttempt | undefined, PoolsUnavailable>
  /** How many attempts are noted. */
  readonly noted: () => number
  /** Ends the lease of the attempt that was opened last or is being opened, if it has one, by what came of the attempt. */
  readonly close: (outcome: Outcome) => void
  /** Notes what came of the open attempt. Returns true if its answer is the one to return. */
  readonly ended: (attempt: OpenAttempt, outcome: Outcome) => boolean
  /** Why no step gave an answer to return. */
  readonly exhausted: Effect.Effect<Exhausted>
}

/** Outcomes whose value is the answer to return. The others say that another step may do better. */
const isFinal = ({ _tag }: Outcome) => _tag === "Succeeded" || _tag === "RequestRefused" || _tag === "Abandoned"

/** After that many failures in a row the provider is down: its other steps are passed over. */
const maxFailures = 2

/** When to retry while another request tries a key, or the key store is away, in milliseconds: neither usually lasts longer. */
export const soon = 1000

const nameOf = (provider: Provider, credential_id: CredentialId | undefined) => credential_id ?? `${provider} shared`

const credentialOf = (step: Step) => (step._tag === "Own" ? step.credential_id : undefined)

/**
 * Walks through the steps of a plan. If a credential changes while it is leased, its provider is searched anew, once. If that
 * happens again, or a key does not open, shared capacity of the provider is passed over: one of its own keys may yet be usable,
 * and a key store that is late or away must not spend the operator's money. Invariant: each step is opened at most once, in the
 * order of the newest pools, and none after a final outcome. It holds no pool: a walk may take minutes.
 */
export const makeWalk =
  ({ end, lease, retryAt, search }: RouterOperations) =>
  (plan: PlannedRequest): Walk => {
    const { freshness, request } = plan
    const resolved: ResolvedRequest = { request, freshness }
    const steps = search(plan)
    const attempts: Array<Attempted> = []
    const failures = new Map<Provider, number>()
    const done = new Set<string>()
    const changed = new Set<Provider>()
    /** Providers of which an own key was refused that may yet serve the request. */
    const mayServe = new Set<Provider>()
    let isOver = false
    let leased: Lease | undefined

    const isWanted: IsWanted = (provider, credential_id) =>
      (failures.get(provider) ?? 0) < maxFailures &&
      (credential_id !== undefined || !mayServe.has(provider)) &&
      !done.has(nameOf(provider, credential_id))

    const made = (lease: Lease) => void (leased = lease)

    const pass = (step: Step) => done.add(nameOf(step.provider, credentialOf(step)))

    const refused = (step: OwnStep, reason: Refusal) => {
      const { provider } = step
      attempts.push({ step, result: { _tag: "Refused", reason } })
      if (reason === "changed" && !changed.has(provider)) {
        changed.add(provider)
        steps.restart()
        return
      }
      if (reason !== "parked" && reason !== "on_trial") mayServe.add(provider)
      pass(step)
    }

    const opened = (step: Step): Walk["next"] => {
      if (step._tag === "Shared") {
        pass(step)
        return Effect.succeed({ step, lease: undefined })
      }
      return Effect.matchEffect(lease(resolved, step, made), {
        onSuccess: (lease) => {
          pass(step)
          return Effect.succeed({ step, lease })
        },
        onFailure: (error) => {
          leased = undefined
          if (error._tag !== "LeaseRefused") return Effect.fail(error)
          refused(step, error.reason)
          return next
        }
      })
    }

    const next: Walk["next"] = Effect.suspend(() =>
      isOver
        ? Effect.undefined
        : Effect.flatMap(steps.next(isWanted), (step) => (step === undefined ? Effect.undefined : opened(step)))
    )

    return {
      next,
      noted: () => attempts.length,
      close: (outcome) => {
        const lease = leased
        leased = undefined
        if (lease !== undefined) end(lease, outcome)
      },
      ended: ({ step }, outcome) => {
        attempts.push({ step, result: outcome })
        const failed = outcome._tag === "UpstreamFailed" ? (failures.get(step.provider) ?? 0) + 1 : 0
        failures.set(step.provider, failed)
        isOver = isFinal(outcome)
        return isOver
      },
      exhausted: Effect.gen(function* () {
        const mayPass = attempts.some(
          ({ result }) => result._tag === "Refused" && (result.reason === "on_trial" || result.reason === "unavailable")
        )
        const retry_at = yield* retryAt(resolved)
        const now = yield* Clock.currentTimeMillis
        return new Exhausted({ attempts, retry_at: mayPass ? Math.min(retry_at ?? Infinity, now + soon) : retry_at })
      })
    }
  }

/** What came of an attempt. `discard` lets go of an answer that is not returned, such as a body that was not read. */
export interface AttemptResult<A> {
  readonly outcome: Outcome
  readonly value: A
  readonly discard?: Effect.Effect<void>
}

/** Sends a request to the upstream of a step, with its key; shared steps have none. */
export type Attempt<A, E, R> = (step: Step, lease: Lease | undefined) => Effect.Effect<AttemptResult<A>, E, R>

/** Drives a walk in process: a lease ends with its attempt. */
export const runPlan =
  (walk: (plan: PlannedRequest) => Walk) =>
  <A, E, R>(plan: PlannedRequest, attempt: Attempt<A, E, R>): Effect.Effect<A, E | Exhausted | PoolsUnavailable, R> =>
    Effect.suspend(() => {
      const { close, ended, exhausted, next } = walk(plan)

      const one = Effect.onExit(
        Effect.flatMap(next, (open) =>
          open === undefined
            ? Effect.succeed(undefined)
            : Effect.map(attempt(open.step, open.lease), (result) => ({
                ...result,
                isLast: ended(open, result.outcome)
              }))
        ),
        // An attempt that fails by itself says nothing about the key.
        (exit) =>
          Effect.sync(() => close(Exit.isSuccess(exit) && exit.value ? exit.value.outcome : { _tag: "Abandoned" }))
      )

      return Effect.gen(function* () {
        for (;;) {
          const found = yield* one
          if (found === undefined) return yield* yield* exhausted
          if (found.isLast) return found.value
          if (found.discard !== undefined) yield* found.discard
        }
      })
    })
