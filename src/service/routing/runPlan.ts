import { Effect, Exit, Option, Scope } from "effect"
import type { Provider } from "../../domain/Provider.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { OwnStep, Step } from "../../domain/routing/Plan.ts"
import type { Lease } from "./Lease.ts"
import type { Planned } from "./Planned.ts"
import { type Attempted, Exhausted, LeaseRefused, type PoolsUnavailable } from "./RouterErrors.ts"

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
  readonly retryAt: (plan: Planned) => Effect.Effect<number | null>
}

const isLeaseRefused = (error: unknown): error is LeaseRefused => error instanceof LeaseRefused

/** Outcomes whose value is the answer to return. The others say that another step may do better. */
const isFinal = ({ _tag }: Outcome) => _tag === "Succeeded" || _tag === "RequestRefused" || _tag === "Abandoned"

/** After that many failures in a row the provider is down: its other steps are passed over. */
const maxFailures = 2

/** Attempts the steps of a plan, each at most once, until one gives an answer to return. */
export const runPlan =
  ({ lease, mayShare, report, retryAt }: RouterOperations) =>
  <A, E, R>(plan: Planned, attempt: Attempt<A, E, R>): Effect.Effect<A, E | Exhausted | PoolsUnavailable, R> => {
    /** An attempt that fails by itself says nothing about the key. */
    const withLease = (step: Step, leased: Lease) =>
      attempt(step, leased).pipe(
        Effect.onExit((exit) => report(leased, Exit.isSuccess(exit) ? exit.value.outcome : { _tag: "Abandoned" }))
      )
    /** None if the step is shared capacity that has been forbidden since. */
    const attempted = (
      step: Step
    ): Effect.Effect<Option.Option<AttemptResult<A>>, E | LeaseRefused | PoolsUnavailable, R> =>
      step._tag === "Own"
        ? Effect.scopedWith((scope) =>
            Effect.flatMap(Scope.provide(lease(plan, step), scope), (leased) => Effect.asSome(withLease(step, leased)))
          )
        : Effect.flatMap(mayShare(plan, step), (allowed) =>
            allowed ? Effect.asSome(attempt(step, undefined)) : Effect.succeedNone
          )

    return Effect.gen(function* () {
      const attempts: Array<Attempted> = []
      const failures = new Map<Provider, number>()
      for (const step of plan.steps) {
        const failed = failures.get(step.provider) ?? 0
        if (failed >= maxFailures) continue
        const refuse = (reason: LeaseRefused["reason"]) =>
          void attempts.push({ step, result: { _tag: "Refused", reason } })
        const found = yield* attempted(step).pipe(
          Effect.catchIf(isLeaseRefused, ({ reason }) => {
            refuse(reason)
            return Effect.succeedNone
          })
        )
        if (Option.isNone(found)) {
          if (step._tag === "Shared") refuse("changed")
          continue
        }
        const { discard = Effect.void, outcome, value } = found.value
        attempts.push({ step, result: outcome })
        if (isFinal(outcome)) return value
        failures.set(step.provider, outcome._tag === "UpstreamFailed" ? failed + 1 : 0)
        yield* discard
      }
      return yield* new Exhausted({ attempts, retry_at: yield* retryAt(plan) })
    })
  }
