import { Effect, Layer, Option } from "effect"
import { CurrentCaller } from "../../domain/CurrentCaller.ts"
import type { Credential } from "../../domain/Credential.ts"
import { InvalidParams, NotFound } from "../../domain/Errors.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import { statusOf } from "../../domain/routing/CredentialStatus.ts"
import { explanationOf } from "../../domain/routing/explanationOf.ts"
import { availabilityOf, healthIn } from "../../domain/routing/Health.ts"
import { momentOf } from "../../domain/routing/Moment.ts"
import { planFor } from "../../domain/routing/planFor.ts"
import type { PlanRequest } from "../../domain/routing/RoutingRequest.ts"
import { neverUsed } from "../../domain/routing/LastUse.ts"
import { CredentialRepository } from "../../port/CredentialRepository.ts"
import { CredentialUse } from "../../port/CredentialUse.ts"
import { RequestTimeout, withDeadline } from "../../port/Deadline.ts"
import { Explanations } from "../../port/Explanations.ts"
import { Parkings } from "../../port/Parkings.ts"
import { workspaceIssue } from "../credentials/Ownership.ts"
import { Pools } from "./Pools.ts"

/** How many credentials of several providers one explanation has at most: 1,000 take about 7 ms. */
const maxCredentials = 5000

const tooMany = InvalidParams.of({
  path: ["targets"],
  message: `must name fewer providers: those given have more than ${maxCredentials} credentials`
})

const make = Effect.fnUntraced(function* (verifies: boolean) {
  const { current } = yield* Pools
  const credentials = yield* CredentialRepository
  const uses = yield* CredentialUse
  const parkings = yield* Parkings
  const inTime = withDeadline(yield* RequestTimeout)

  const explain = Effect.fnUntraced(function* (account_id: AccountId, asked: PlanRequest) {
    const providers = asked.targets.map(({ provider }) => provider)
    const { snapshots, workspace_id } = yield* Effect.catchTag(
      current({ ...asked, account_id }, providers),
      "UnknownWorkspace",
      () => InvalidParams.of(workspaceIssue(asked.workspace_id))
    )
    const request = { ...asked, account_id, workspace_id }
    const credentials = snapshots.reduce((sum, { pool }) => sum + pool.length, 0)
    if (providers.length > 1 && credentials > maxCredentials) return yield* tooMany
    const now = yield* Effect.clockWith((clock) => Effect.sync(() => momentOf(clock)))
    const poolOf = (provider: Provider) => snapshots[providers.indexOf(provider)]?.pool ?? []
    const plan = planFor(request, poolOf, ({ key_version, leaked, stored }) =>
      availabilityOf(healthIn(stored, key_version, request.model, now.monotonic), leaked, now)
    )
    // Others are served between the parts of an explanation of large pools, of which writing the answer is the last.
    yield* Effect.yieldNow
    const explanation = explanationOf(request, plan, poolOf)
    yield* Effect.yieldNow
    return explanation
  })

  /** The statuses of credentials of one workspace that were just read: one of each kind of statement for all. */
  const statuses = Effect.fnUntraced(function* (account_id: AccountId, listed: ReadonlyArray<Credential>) {
    const [first] = listed
    if (first === undefined) return []
    const ids = listed.map(({ id }) => id)
    // Of a slug that only another version knows, there are pools all the same.
    const providers = Array.from(new Set(listed.map(({ provider }) => provider as Provider)))
    const snapshots = yield* current({ account_id, workspace_id: first.workspace_id }, providers).pipe(
      Effect.map(({ snapshots }) => snapshots),
      Effect.catchTag("UnknownWorkspace", () => Effect.succeed(undefined))
    )
    const parked = yield* parkings.find(account_id, ids)
    const used = yield* uses.find(account_id, ids)
    return listed.map((credential) => {
      const { id, provider } = credential
      const pooled = snapshots?.[providers.indexOf(provider as Provider)]?.byId.get(id)
      // Deleted since, unless the workspace is.
      if (snapshots !== undefined && pooled === undefined) return null
      return statusOf(credential, pooled, parked.get(id) ?? [], used.get(id) ?? neverUsed)
    })
  })

  const status = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId) {
    const found = yield* credentials.findById(account_id, id)
    const [status = null] = yield* statuses(account_id, Option.toArray(found))
    return status ?? (yield* new NotFound())
  })

  const asCaller = <A, E, R>(answer: (account_id: AccountId) => Effect.Effect<A, E, R>) =>
    Effect.flatMap(CurrentCaller, ({ account_id }) => inTime(answer(account_id)))

  return Explanations.of({
    explain: (request) => asCaller((account_id) => explain(account_id, request)),
    statuses: (listed) => asCaller((account_id) => statuses(account_id, listed)),
    status: (id) => asCaller((account_id) => status(account_id, id)),
    verifies
  })
})

export const layer = Layer.provide(Layer.effect(Explanations, make(true)), Pools.layer)

/** Without a keyring: what a plan would be if every row is what was sealed. */
export const layerUnverified = Layer.provide(Layer.effect(Explanations, make(false)), Pools.layerUnverified)
