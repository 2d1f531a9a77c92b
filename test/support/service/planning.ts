import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import type { PoolOwner } from "../../../src/port/CredentialPools.ts"
import type { PlannedRequest } from "../../../src/service/routing/PlannedRequest.ts"
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

export const ownStep = ({ steps }: PlannedRequest, index = 0) => {
  const step = steps[index]
  return step?._tag === "Own" ? step : assert.fail("no own step")
}

/** Leases a step and reports an outcome. */
export const attempt = Effect.fnUntraced(function* (plan: PlannedRequest, outcome: Outcome) {
  const { lease, report } = yield* Router
  yield* Effect.scoped(Effect.flatMap(lease(plan, ownStep(plan)), (leased) => report(leased, outcome)))
})
