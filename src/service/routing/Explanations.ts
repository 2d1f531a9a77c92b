import { Clock, Effect, Layer, Option } from "effect"
import type { Credential } from "../../domain/Credential.ts"
import { InvalidParams, NotFound } from "../../domain/Errors.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { accountOf, CurrentPrincipal } from "../../domain/Principal.ts"
import type { Provider } from "../../domain/Provider.ts"
import { statusOf } from "../../domain/routing/CredentialStatus.ts"
import { explanationBody } from "../../domain/routing/Explanation.ts"
import { explanationOf } from "../../domain/routing/explanationOf.ts"
import { availabilityOf, healthIn, momentOf, monotonicMillis } from "../../domain/routing/Health.ts"
import { planFor } from "../../domain/routing/planFor.ts"
import type { PooledCredential } from "../../domain/routing/Pool.ts"
import type { PlanRequest } from "../../domain/routing/RoutingRequest.ts"
import { neverUsed } from "../../domain/routing/LastUse.ts"
import { CredentialRepository, type PageMemory } from "../../port/CredentialRepository.ts"
import { CredentialUse } from "../../port/CredentialUse.ts"
import { RequestTimeout, withDeadline } from "../../runtime/Deadline.ts"
import { Explanations } from "../../port/Explanations.ts"
import { type Holding, MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { Parkings } from "../../port/Parkings.ts"
import { workspaceIssue } from "../credentials/Ownership.ts"
import { Pools } from "./Pools.ts"

/** How many credentials of several providers one explanation has at most: 1,000 take about 7 ms. */
const maxCredentials = 5000

/** How many bytes of memory an explanation takes for each credential while it is made, about. */
const explainedBytes = 3000

const tooMany = InvalidParams.of({
  path: ["targets"],
  message: `must name fewer providers: those given have more than ${maxCredentials} credentials`
})

/** Of pools with fewer credentials no explanation is kept, and of the others as many as this. */
const kept = { members: 16, each: 4 }

/** An explanation, of what it was made, and when the first cooldown or trial in it ends. It refers to no pool. */
interface Kept {
  readonly body: Uint8Array
  readonly asked: string
  readonly snapshots: string
  /** By the monotonic clock. */
  readonly until: number
  readonly holding: Holding
}

const make = Effect.fnUntraced(function* (verifies: boolean) {
  const { current, inTurn, part } = yield* Pools
  const budget = yield* MemoryBudget
  const clock = yield* Clock.Clock
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

  const explain = Effect.fnUntraced(function* ({ poolOf, request }: Prepared) {
    const now = momentOf(clock)
    let until = Number.POSITIVE_INFINITY
    const availability = ({ key_version, leaked, stored }: PooledCredential) => {
      const found = availabilityOf(healthIn(stored, key_version, request.model, now.monotonic), leaked, now)
      if (found._tag !== "Free" && found.until !== null) {
        until = Math.min(until, now.monotonic + found.until - now.wall)
      }
      return found
    }
    const plan = yield* part(() => planFor(request, poolOf, availability))
    return { explanation: yield* part(() => explanationOf(request, plan, poolOf)), until }
  })

  const bodies = new Map<string, ReadonlyArray<Kept>>()
  const forget = (pools: string, body: Uint8Array) => {
    const found = bodies.get(pools) ?? []
    for (const one of found) if (one.body === body) one.holding.release()
    const others = found.filter((one) => one.body !== body)
    if (others.length > 0) bodies.set(pools, others)
    else bodies.delete(pools)
  }
  /** Keeps a body if there is room for it. */
  const keep = (pools: string, made: Omit<Kept, "holding">) => {
    const holding = budget.hold("", "page")
    if (!holding.grow(made.body.length + 2 * made.asked.length + 500, () => {})) return holding.release()
    for (const one of bodies.get(pools) ?? []) if (one.asked === made.asked) forget(pools, one.body)
    const others = bodies.get(pools) ?? []
    for (const one of others.slice(0, Math.max(0, others.length + 1 - kept.each))) forget(pools, one.body)
    bodies.set(pools, [...(bodies.get(pools) ?? []), { ...made, holding }])
    holding.spare(() => forget(pools, made.body))
  }

  const explainedBody = Effect.fnUntraced(function* (account_id: AccountId, given: PlanRequest, memory: PageMemory) {
    const prepared = yield* prepare(account_id, given)
    const { members, request } = prepared
    yield* memory.admit(explainedBytes * members)
    const asked = JSON.stringify(request)
    const snapshots = prepared.snapshots.map(({ n }) => n).join()
    const pools = `${account_id} ${request.workspace_id} ${request.targets.map(({ provider }) => provider).join()}`
    const found = () => {
      const one = bodies
        .get(pools)
        ?.find((kept) => kept.asked === asked && kept.snapshots === snapshots && monotonicMillis(clock) < kept.until)
      one?.holding.touch()
      return one?.body
    }
    const made = Effect.gen(function* () {
      const known = found()
      if (known !== undefined) return known
      const { explanation, until } = yield* explain(prepared)
      const body = yield* part(() => explanationBody(explanation))
      if (members >= kept.members) keep(pools, { body, asked, snapshots, until })
      return body
    })
    return found() ?? (yield* inTurn(account_id, made))
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
    Effect.flatMap(CurrentPrincipal, (principal) => inTime(answer(accountOf(principal))))

  return Explanations.of({
    explain: (request) =>
      asCaller((account_id) =>
        Effect.flatMap(prepare(account_id, request), (prepared) =>
          Effect.map(inTurn(account_id, explain(prepared)), ({ explanation }) => explanation)
        )
      ),
    explainedBody: (request, memory) => asCaller((account_id) => explainedBody(account_id, request, memory)),
    statuses: (listed) => asCaller((account_id) => statuses(account_id, listed)),
    status: (id) => asCaller((account_id) => status(account_id, id)),
    verifies
  })
})

export const layer = Layer.provide(Layer.effect(Explanations, make(true)), Pools.layer)

/** Without a keyring: what a plan would be if every row is what was sealed. */
export const layerUnverified = Layer.provide(Layer.effect(Explanations, make(false)), Pools.layerUnverified)
