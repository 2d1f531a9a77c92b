import { Clock, Effect, Exit } from "effect"
import type { Provider } from "../../domain/Provider.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, ProviderPlan, Step } from "../../domain/routing/Plan.ts"
import * as AtHand from "../../port/AtHand.ts"
import type { Lease } from "./Lease.ts"
import type { PlannedRequest } from "./PlannedRequest.ts"
import { type Attempted, Exhausted, LeaseRefused, type PoolsUnavailable, type Refusal } from "./RouterErrors.ts"

/** What a walk needs of the router. */
export interface RouterOperations {
  /**
   * Acts when it is called. `made` gets the lease before its key is opened: whoever waits for it may leave, and then ends it. One
   * that is refused has ended.
   */
  readonly lease: (
    plan: PlannedRequest,
    step: OwnStep,
    made: (lease: Lease) => void
  ) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable>
  /** Tells what came of an attempt with a lease, and ends it. */
  readonly end: (lease: Lease, outcome: Outcome) => void
  readonly mayShare: (plan: PlannedRequest, step: Step) => Effect.Effect<boolean, PoolsUnavailable>
  /** Plans the request of a plan again; without a step if its workspace is gone. */
  readonly replan: (plan: PlannedRequest) => Effect.Effect<PlannedRequest, PoolsUnavailable>
  readonly retryAt: (plan: PlannedRequest) => Effect.Effect<number | null>
}

/** A step that is being attempted; shared steps have no lease. */
export interface OpenAttempt {
  readonly step: Step
  readonly lease: Lease | undefined
}

/** The attempts of a plan, one after the other. */
export interface Walk {
  /**
   * Opens the next attempt; undefined after the last one. Acts when it is called, and may be called again if this fails.
   * However it ends, `close` must be called before the next.
   */
  readonly next: () => Effect.Effect<OpenAttempt | undefined, PoolsUnavailable>
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
const soon = 1000

const isUnavailable = ({ shared }: ProviderPlan) =>
  shared.removed.some((removal) => removal.reason === "seal" && removal.seal === "unavailable")

const keyOf = (step: Step) => (step._tag === "Own" ? step.credential_id : `${step.provider} shared`)

/**
 * Walks through the steps of a plan. If a credential has changed since it was planned, the request is planned again, once
 * for each provider. If that happens again, or a key does not open, shared capacity of the provider is passed over: one of its
 * own keys may yet be usable, and a key store that is late or away must not spend the operator's money. Invariant: each step is opened at most once, in the order of the newest plan, and none after a final outcome.
 */
export const makeWalk =
  ({ end, lease, mayShare, replan, retryAt }: RouterOperations) =>
  (first: PlannedRequest): Walk => {
    const attempts: Array<Attempted> = []
    const failures = new Map<Provider, number>()
    const done = new Set<string>()
    const changed = new Set<Provider>()
    /** Providers of which an own key was refused that may yet serve the request. */
    const mayServe = new Set<Provider>()
    let plan = first
    let steps = plan.steps
    /** The place of the next step. Copies without the steps before it would make a walk through a large pool quadratic. */
    let at = 0
    let leased: Lease | undefined

    const isPassedOver = ({ _tag, provider }: Step) =>
      (failures.get(provider) ?? 0) >= maxFailures || (_tag === "Shared" && mayServe.has(provider))

    const made = (lease: Lease) => void (leased = lease)

    const opened = (step: Step): Effect.Effect<Lease | undefined, LeaseRefused | PoolsUnavailable> =>
      step._tag === "Own"
        ? lease(plan, step, made)
        : AtHand.flatMap(mayShare(plan, step), (allowed) =>
            allowed ? Effect.succeed(undefined) : Effect.fail(new LeaseRefused({ reason: "changed" }))
          )

    const pass = (step: Step) => {
      done.add(keyOf(step))
      at += 1
    }

    /** Nothing is noted if planning again fails: the step is tried again then. */
    const refused = (step: Step, reason: Refusal) => {
      const { provider } = step
      const note = () => void attempts.push({ step, result: { _tag: "Refused", reason } })
      if (reason === "changed" && step._tag === "Own" && !changed.has(provider)) {
        return Effect.map(replan(plan), (newer) => {
          changed.add(provider)
          note()
          plan = newer
          steps = plan.steps.filter((one) => !done.has(keyOf(one)))
          at = 0
        })
      }
      return Effect.sync(() => {
        if (step._tag === "Own" && reason !== "parked" && reason !== "on_trial") mayServe.add(provider)
        pass(step)
        note()
      })
    }

    const next: Walk["next"] = () => {
      let step = steps[at]
      while (step !== undefined && isPassedOver(step)) step = steps[(at += 1)]
      if (step === undefined) return Effect.succeed(undefined)
      const open = AtHand.map(opened(step), (lease) => {
        pass(step)
        return { step, lease }
      })
      // Suspended, as there may be many: the stack does not grow with them.
      return AtHand.catchError(open, (error) => {
        leased = undefined
        return error._tag === "LeaseRefused"
          ? Effect.andThen(refused(step, error.reason), Effect.suspend(next))
          : Effect.fail(error)
      })
    }

    return {
      next,
      close: (outcome) => {
        const lease = leased
        leased = undefined
        if (lease !== undefined) end(lease, outcome)
      },
      ended: ({ step }, outcome) => {
        attempts.push({ step, result: outcome })
        const failed = outcome._tag === "UpstreamFailed" ? (failures.get(step.provider) ?? 0) + 1 : 0
        failures.set(step.provider, failed)
        if (isFinal(outcome)) steps = []
        return isFinal(outcome)
      },
      exhausted: Effect.gen(function* () {
        const mayPass = attempts.some(
          ({ result }) => result._tag === "Refused" && (result.reason === "on_trial" || result.reason === "unavailable")
        )
        const retry_at = yield* retryAt(plan)
        const now = yield* Clock.currentTimeMillis
        const retriesSoon = mayPass || plan.providers.some(isUnavailable)
        return new Exhausted({
          attempts,
          retry_at: retriesSoon ? Math.min(retry_at ?? Infinity, now + soon) : retry_at
        })
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
        Effect.flatMap(Effect.suspend(next), (open) =>
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
