import { randomUUID } from "node:crypto"
import { Effect, Exit, Option, type Scope } from "effect"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { credentialOf, isFinal, outcomeAfter, type Past } from "../../domain/routing/Past.ts"
import type { Step } from "../../domain/routing/Plan.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import type { Lease } from "./Lease.ts"
import type { OpenNext } from "./NextAttempt.ts"
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

const isExhausted = (exit: Exit.Exit<unknown, unknown>) =>
  Option.match(Exit.findErrorOption(exit), { onNone: () => false, onSome: (error) => error instanceof Exhausted })

/**
 * Makes the loop of attempts and reports. Invariant: each attempt is reported once, before its lease ends and the next
 * one is planned; one that fails or is interrupted counts as abandoned. Each answer is returned or discarded.
 */
export const makeRun = (nextAttempt: OpenNext, report: (lease: Lease, outcome: Outcome) => void) =>
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
      const { provider } = step
      const outcomeIn = (exit: Exit.Exit<AttemptResult<A>, E>): Outcome =>
        // A failed attempt shows nothing about the key.
        Exit.isSuccess(exit) ? outcomeAfter(past, provider, exit.value.outcome) : { _tag: "Abandoned" }
      const result = yield* onEnd(attempt(step, lease), (exit) => {
        if (lease !== undefined) report(lease, outcomeIn(exit))
      })
      const outcome = outcomeAfter(past, provider, result.outcome)
      return {
        ...result,
        outcome,
        past: [...past, { provider, credential_id: credentialOf(step), result: outcome._tag }]
      }
    })

    let past: Past = []
    /** The last answer, if it said that the request is not served: it is returned if no step is left. */
    let unserved: AttemptResult<A> | undefined
    for (;;) {
      const last = unserved
      const result = yield* Effect.scoped(attemptOnce(past)).pipe(
        Effect.onExit((exit) =>
          last === undefined || isExhausted(exit) ? Effect.void : (last.discard ?? Effect.void)
        ),
        Effect.catchIf(
          (error) => error instanceof Exhausted && last !== undefined,
          () => Effect.succeed(undefined)
        )
      )
      if (result === undefined) return (last as AttemptResult<A>).value
      if (isFinal(result.outcome._tag)) return result.value
      past = result.past
      unserved = result.outcome._tag === "NotServed" ? result : undefined
      if (unserved === undefined && result.discard !== undefined) yield* result.discard
    }
  })
