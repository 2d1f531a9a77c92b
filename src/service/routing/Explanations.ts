import { setTimeout } from "node:timers/promises"
import { Effect, Layer, Option } from "effect"
import { CurrentCaller } from "../../domain/CurrentCaller.ts"
import type { Credential } from "../../domain/Credential.ts"
import { InvalidParams, NotFound } from "../../domain/Errors.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import { statusOf } from "../../domain/routing/CredentialStatus.ts"
import { explanationBody } from "../../domain/routing/Explanation.ts"
import { explanationOf } from "../../domain/routing/explanationOf.ts"
import { availabilityOf, healthIn } from "../../domain/routing/Health.ts"
import { type Moment, momentOf } from "../../domain/routing/Moment.ts"
import { planFor } from "../../domain/routing/planFor.ts"
import type { PlanRequest } from "../../domain/routing/RoutingRequest.ts"
import { neverUsed } from "../../domain/routing/LastUse.ts"
import { CredentialRepository, type PageMemory } from "../../port/CredentialRepository.ts"
import { CredentialUse } from "../../port/CredentialUse.ts"
import { RequestTimeout, withDeadline } from "../../port/Deadline.ts"
import { Explanations } from "../../port/Explanations.ts"
import { makeRequestQueue } from "../../port/FairQueue.ts"
import { Parkings } from "../../port/Parkings.ts"
import { workspaceIssue } from "../credentials/Ownership.ts"
import { keptBytes, makePlanCache } from "./makePlanCache.ts"
import { Pools } from "./Pools.ts"

/** How many credentials of several providers one explanation has at most: 1,000 take about 7 ms. */
const maxCredentials = 5000

/** How many bytes of memory an explanation takes for each credential while it is made, about. */
const explainedBytes = 3000

const tooMany = InvalidParams.of({
  path: ["targets"],
  message: `must name fewer providers: those given have more than ${maxCredentials} credentials`
})

/** Does a part of an explanation, which takes milliseconds for large pools, and leaves as long to others. */
const restingAfter = <A>(part: () => A) =>
  Effect.suspend(() => {
    const began = performance.now()
    const made = part()
    const took = performance.now() - began
    return Effect.as(took < 0.5 ? Effect.yieldNow : Effect.promise(() => setTimeout(took)), made)
  })

const nowOf = Effect.clockWith((clock) => Effect.sync(() => momentOf(clock)))

const make = Effect.fnUntraced(function* (verifies: boolean) {
  const { current } = yield* Pools
  const credentials = yield* CredentialRepository
  const uses = yield* CredentialUse
  const parkings = yield* Parkings
  const inTime = withDeadline(yield* RequestTimeout)

  /** What a plan is made from. */
  const prepare = Effect.fnUntraced(function* (account_id: AccountId, asked: PlanRequest) {
    const providers = asked.targets.map(({ provider }) => provider)
    const { snapshots, workspace_id } = yield* Effect.catchTag(
      current({ ...asked, account_id }, providers),
      "UnknownWorkspace",
      () => InvalidParams.of(workspaceIssue(asked.workspace_id))
    )
    const members = snapshots.reduce((sum, { pool }) => sum + pool.length, 0)
    if (providers.length > 1 && members > maxCredentials) return yield* tooMany
    const poolOf = (provider: Provider) => snapshots[providers.indexOf(provider)]?.pool ?? []
    return { request: { ...asked, account_id, workspace_id }, snapshots, members, poolOf }
  })
  type Prepared = Effect.Success<ReturnType<typeof prepare>>

  const explanationFrom = Effect.fnUntraced(function* (
    { poolOf, request }: Prepared,
    now: Moment,
    noting: ReturnType<ReturnType<typeof makePlanCache>["begin"]>["noting"]
  ) {
    const availability = noting(({ key_version, leaked, stored }) =>
      availabilityOf(healthIn(stored, key_version, request.model, now.monotonic), leaked, now)
    )
    const plan = yield* restingAfter(() => planFor(request, poolOf, availability))
    return yield* restingAfter(() => explanationOf(request, plan, poolOf))
  })

  const explain = Effect.fnUntraced(function* (account_id: AccountId, asked: PlanRequest) {
    return yield* explanationFrom(yield* prepare(account_id, asked), yield* nowOf, (availability) => availability)
  })

  const bodies = makePlanCache<Uint8Array>()
  /** One at a time is made, as long ones delay everybody, and in rotation of accounts. */
  const inTurn = makeRequestQueue({ inProgress: 1, waiting: Number.POSITIVE_INFINITY })

  const explainedBody = Effect.fnUntraced(function* (account_id: AccountId, asked: PlanRequest, memory: PageMemory) {
    const prepared = yield* prepare(account_id, asked)
    const { members, request, snapshots } = prepared
    yield* memory.admit(explainedBytes * members)
    const found = bodies.find(request, snapshots, yield* nowOf)
    if (found !== undefined) return found
    const made = Effect.gen(function* () {
      const now = yield* nowOf
      const found = bodies.find(request, snapshots, now)
      if (found !== undefined) return found
      const { keep, noting } = bodies.begin(request, snapshots, now)
      const explanation = yield* explanationFrom(prepared, now, noting)
      const body = yield* restingAfter(() => explanationBody(explanation))
      return body.length <= keptBytes * (snapshots[0]?.pool.length ?? 0) ? keep(body) : body
    })
    return yield* inTurn(account_id, made)
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
    explainedBody: (request, memory) => asCaller((account_id) => explainedBody(account_id, request, memory)),
    statuses: (listed) => asCaller((account_id) => statuses(account_id, listed)),
    status: (id) => asCaller((account_id) => status(account_id, id)),
    verifies
  })
})

export const layer = Layer.provide(Layer.effect(Explanations, make(true)), Pools.layer)

/** Without a keyring: what a plan would be if every row is what was sealed. */
export const layerUnverified = Layer.provide(Layer.effect(Explanations, make(false)), Pools.layerUnverified)
