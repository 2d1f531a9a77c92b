import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import type { PoolOwner } from "../../../src/port/CredentialPools.ts"
import type { AttemptOptions } from "../../../src/service/routing/NextAttempt.ts"
import { Router } from "../../../src/service/routing/Router.ts"

const model = "a/model"

/** A request for the model at one provider, unless it is changed. */
export const requestOf = ({ account_id, workspace_id }: PoolOwner, change: object = {}) =>
  Schema.decodeUnknownSync(RoutingRequest)({
    account_id,
    workspace_id,
    model,
    targets: [{ provider: "azure" }],
    ...change
  })

export const planOf = (owner: PoolOwner, change: object = {}) =>
  Effect.flatMap(Router, ({ plan }) => plan(requestOf(owner, change)))

/** Leases the first key of a request until the scope closes. */
export const leaseOf = Effect.fnUntraced(function* (
  owner: PoolOwner,
  change: object = {},
  options: AttemptOptions = {}
) {
  const { nextAttempt } = yield* Router
  const { attempt } = yield* nextAttempt(requestOf(owner, change), [], options)
  return attempt?.lease ?? assert.fail("no lease")
})

/** Attempts a request once, and reports an outcome. */
export const attempt = (owner: PoolOwner, outcome: Outcome, change: object = {}) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { report } = yield* Router
      yield* report(yield* leaseOf(owner, change), outcome)
    })
  )
