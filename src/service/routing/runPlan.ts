import { Effect, Exit, Scope } from "effect"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { Step } from "../../domain/routing/Plan.ts"
import type { Lease } from "./Lease.ts"
import type { Planned } from "./Planned.ts"
import type { Exhausted, PoolsUnavailable } from "./RouterErrors.ts"
import type { Walk } from "./Walk.ts"

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
  (walk: (plan: Planned) => Walk, report: (lease: Lease, outcome: Outcome) => Effect.Effect<void>) =>
  <A, E, R>(plan: Planned, attempt: Attempt<A, E, R>): Effect.Effect<A, E | Exhausted | PoolsUnavailable, R> =>
    Effect.suspend(() => {
      const { ended, exhausted, next } = walk(plan)

      /** An attempt that fails by itself says nothing about the key. */
      const attempted = (step: Step, lease: Lease | undefined) =>
        lease === undefined
          ? attempt(step, lease)
          : Effect.onExit(attempt(step, lease), (exit) =>
              report(lease, Exit.isSuccess(exit) ? exit.value.outcome : { _tag: "Abandoned" })
            )

      const one = Effect.scopedWith((scope) =>
        Effect.flatMap(Scope.provide(next, scope), (open) =>
          open === undefined
            ? Effect.succeed(undefined)
            : Effect.map(attempted(open.step, open.lease), (result) => ({
                ...result,
                isLast: ended(open, result.outcome)
              }))
        )
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
