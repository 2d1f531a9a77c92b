import { Clock, Effect, Exit, Scope } from "effect"
import type { Provider } from "../../domain/Provider.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Step } from "../../domain/routing/Plan.ts"
import type { Lease } from "./Lease.ts"
import type { Planned } from "./Planned.ts"
import { type Attempted, Exhausted, type LeaseRefused, type PoolsUnavailable, type Refusal } from "./RouterErrors.ts"

/** What came of an attempt. `discard` lets go of an answer that is not returned, such as a body that was not read. */
export interface AttemptResult<A> {
  readonly outcome: Outcome
  readonly value: A
  readonly discard?: Effect.Effect<void>
}

/** Sends a request to the upstream of a step, with its key; shared steps have none. */
export type Attempt<A, E, R> = (step: Step, lease: Lease | undefined) => Effect.Effect<AttemptResult<A>, E, R>

/** What running a plan needs of the router. */
interface RouterOperations {
  readonly lease: (plan: Planned, step: OwnStep) => Effect.Effect<Lease, LeaseRefused | PoolsUnavailable, Scope.Scope>
  readonly report: (lease: Lease, outcome: Outcome) => Effect.Effect<void>
  readonly mayShare: (plan: Planned, step: Step) => Effect.Effect<boolean, PoolsUnavailable>
  /** Plans the request of a plan again; without a step if its workspace is gone. */
  readonly replan: (plan: Planned) => Effect.Effect<Planned, PoolsUnavailable>
  readonly retryAt: (plan: Planned) => Effect.Effect<number | null>
}

/** Outcomes whose value is the answer to return. The others say that another step may do better. */
const isFinal = ({ _tag }: Outcome) => _tag === "Succeeded" || _tag === "RequestRefused" || _tag === "Abandoned"

/** After that many failures in a row the provider is down: its other steps are passed over. */
const maxFailures = 2

/** When a key that another request is trying may be tried itself, in milliseconds: a trial rarely takes longer. */
const afterTrial = 1000

const nameOf = (step: Step) => (step._tag === "Own" ? step.credential_id : `${step.provider} shared`)

/**
 * Attempts the steps of a plan, each at most once, until one gives an answer to return. If a credential has changed since
 * it was planned, the request is planned again, once for each provider; if that happens again, shared capacity of the
 * provider is passed over, because one of its own keys may yet be usable.
 */
export const runPlan =
  ({ lease, mayShare, replan, report, retryAt }: RouterOperations) =>
  <A, E, R>(first: Planned, attempt: Attempt<A, E, R>): Effect.Effect<A, E | Exhausted | PoolsUnavailable, R> => {
    /** An attempt that fails by itself says nothing about the key. */
    const withLease = (step: Step, leased: Lease) =>
      attempt(step, leased).pipe(
        Effect.onExit((exit) => report(leased, Exit.isSuccess(exit) ? exit.value.outcome : { _tag: "Abandoned" }))
      )
    /** What came of the attempt, or why there was none. */
    const attempted = (
      plan: Planned,
      step: Step
    ): Effect.Effect<AttemptResult<A> | Refusal, E | PoolsUnavailable, R> =>
      step._tag === "Own"
        ? Effect.scopedWith((scope) =>
            Scope.provide(lease(plan, step), scope).pipe(
              Effect.catchTag("LeaseRefused", ({ reason }) => Effect.succeed(reason)),
              Effect.flatMap((leased): Effect.Effect<AttemptResult<A> | Refusal, E, R> =>
                typeof leased === "string" ? Effect.succeed(leased) : withLease(step, leased)
              )
            )
          )
        : Effect.flatMap(mayShare(plan, step), (allowed): Effect.Effect<AttemptResult<A> | Refusal, E, R> =>
            allowed ? attempt(step, undefined) : Effect.succeed("changed")
          )

    return Effect.gen(function* () {
      const attempts: Array<Attempted> = []
      const failures = new Map<Provider, number>()
      const done = new Set<string>()
      const changed = new Map<Provider, number>()
      let plan = first
      let steps = plan.steps
      for (let step = steps[0]; step !== undefined; step = steps[0]) {
        steps = steps.slice(1)
        const { provider } = step
        const failed = failures.get(provider) ?? 0
        if (failed >= maxFailures) continue
        if (step._tag === "Shared" && (changed.get(provider) ?? 0) > 1) continue
        const found = yield* attempted(plan, step)
        if (typeof found !== "string") {
          done.add(nameOf(step))
          const { discard = Effect.void, outcome, value } = found
          attempts.push({ step, result: outcome })
          if (isFinal(outcome)) return value
          failures.set(provider, outcome._tag === "UpstreamFailed" ? failed + 1 : 0)
          yield* discard
          continue
        }
        attempts.push({ step, result: { _tag: "Refused", reason: found } })
        if (found !== "changed" || step._tag === "Shared") {
          done.add(nameOf(step))
          continue
        }
        changed.set(provider, (changed.get(provider) ?? 0) + 1)
        if (changed.get(provider) !== 1) continue
        plan = yield* replan(plan)
        steps = plan.steps.filter((one) => !done.has(nameOf(one)))
      }
      const onTrial = attempts.some(({ result }) => result._tag === "Refused" && result.reason === "on_trial")
      const retry_at = yield* retryAt(plan)
      const now = yield* Clock.currentTimeMillis
      return yield* new Exhausted({ attempts, retry_at: retry_at ?? (onTrial ? now + afterTrial : null) })
    })
  }
