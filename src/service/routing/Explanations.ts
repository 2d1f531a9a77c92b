import { Effect, Layer, Option } from "effect"
import { CurrentCaller } from "../../domain/CurrentCaller.ts"
import { InvalidParams } from "../../domain/Errors.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import { explanationOf } from "../../domain/routing/explanationOf.ts"
import { availabilityOf, healthIn } from "../../domain/routing/Health.ts"
import { planFor } from "../../domain/routing/planFor.ts"
import type { PlanRequest } from "../../domain/routing/RoutingRequest.ts"
import { RequestTimeout, withDeadline } from "../../port/Deadline.ts"
import { Explanations } from "../../port/Explanations.ts"
import { WorkspaceResolver } from "../../port/WorkspaceResolver.ts"
import { workspaceIssue } from "../Ownership.ts"
import { momentOf } from "./makeHealthLedger.ts"
import { Pools } from "./Pools.ts"

const make = Effect.fnUntraced(function* (verifies: boolean) {
  const workspaces = yield* WorkspaceResolver
  const { current } = yield* Pools
  const inTime = withDeadline(yield* RequestTimeout)

  const explain = Effect.fnUntraced(function* (account_id: AccountId, asked: PlanRequest) {
    const providers = asked.targets.map(({ provider }) => provider)
    const refused = InvalidParams.of(workspaceIssue(asked.workspace_id))
    const workspace = yield* workspaces.resolve(account_id, asked.workspace_id)
    if (Option.isNone(workspace)) return yield* refused
    const request = { ...asked, account_id, workspace_id: workspace.value }
    const snapshots = yield* current(request, providers)
    if (Option.isNone(snapshots)) return yield* refused
    const now = yield* Effect.clockWith((clock) => Effect.sync(() => momentOf(clock)))
    const pools = new Map(snapshots.value.map((snapshot, index) => [providers[index], snapshot] as const))
    const poolOf = (provider: Provider) => pools.get(provider)?.pool ?? []
    const plan = planFor(request, poolOf, ({ key_version, leaked, stored }) =>
      availabilityOf(healthIn(stored, key_version, request.model, now.monotonic), leaked, now)
    )
    // Others are served between the two halves of an explanation of large pools.
    yield* Effect.yieldNow
    return explanationOf(request, plan, poolOf)
  })

  return Explanations.of({
    explain: (request) => Effect.flatMap(CurrentCaller, ({ account_id }) => inTime(explain(account_id, request))),
    verifies
  })
})

export const layer = Layer.provide(Layer.effect(Explanations, make(true)), Pools.layer)

/** Without a keyring: what a plan would be if every row is what was sealed. */
export const layerUnverified = Layer.provide(Layer.effect(Explanations, make(false)), Pools.layerUnverified)
