import { randomUUID } from "node:crypto"
import { Effect, Exit, type Scope } from "effect"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { credentialOf, isFinal, type Past } from "../../domain/routing/Past.ts"
import type { Step } from "../../domain/routing/Plan.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import type { Lease } from "./Lease.ts"
import type { Router } from "./Router.ts"
import { Exhausted, type PlanFailure } from "./RouterErrors.ts"
import type { Freshness, RouterRequest } from "./RouterRequest.ts"

/** The result of an attempt. `discard` frees an answer that is not returned, such as an unread body. */
export interface AttemptResult<A> {
  readonly outcome: Outcome
  readonly value: A
  readonly discard?: Effect.Effect<void>
}

/** Sends a request to the upstream of a step; shared steps have no lease. */
export type Attempt<A, E, R> = (step: Step, lease: Lease | undefined) => Effect.Effect<AttemptResult<A>, E, R>

/**
 * Makes the loop of attempts and reports. Invariant: each attempt is reported once, before its lease ends and the next
 * one is planned; one that fails or is interrupted counts as abandoned.
 */
export const makeRun = (
  nextAttempt: Router["Service"]["nextAttempt"],
  report: (lease: Lease, outcome: Outcome) => void
) =>
  Effect.fnUntraced(function* <A, E, R>(
    request: RouterRequest,
    attempt: Attempt<A, E, R>,
    freshness: Freshness = "now"
  ): Effect.fn.Return<A, E | Exhausted | PlanFailure, R> {
    const request_id = randomUUID()

    const attemptOnce = Effect.fnUntraced(function* (
      before: Past
    ): Effect.fn.Return<AttemptResult<A> & { readonly past: Past }, E | Exhausted | PlanFailure, R | Scope.Scope> {
      const options = { freshness, request_id }
      const {
        attempt: opened,
        past,
        plan,
        retry_at
      } = yield* Effect.catchTag(
        nextAttempt(request, before, options),
        "AnotherAccount",
        // No account is demanded.
        (error) => Effect.die(error)
      )
      if (opened === undefined) return yield* new Exhausted({ past, providers: plan().providers, retry_at })
      const { lease, step } = opened
      const result = yield* onEnd(attempt(step, lease), (exit) => {
        // A failed attempt shows nothing about the key.
        const outcome: Outcome = Exit.isSuccess(exit) ? exit.value.outcome : { _tag: "Abandoned" }
        if (lease !== undefined) report(lease, outcome)
      })
      const { provider } = step
      return {
        ...result,
        past: [...past, { provider, credential_id: credentialOf(step), result: result.outcome._tag }]
      }
    })

    let past: Past = []
    for (;;) {
      const result = yield* Effect.scoped(attemptOnce(past))
      if (isFinal(result.outcome._tag)) return result.value
      past = result.past
      if (result.discard !== undefined) yield* result.discard
    }
  })
