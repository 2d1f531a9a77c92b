import { Clock, Effect, Layer, Option } from "effect"
import type { Credential } from "../../domain/Credential.ts"
import { InvalidParams, NotFound } from "../../domain/Errors.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { ifAllowed } from "../../domain/Principal.ts"
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
import { type Reservation, MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { Parkings } from "../../port/Parkings.ts"
import { workspaceIssue } from "../credentials/Ownership.ts"
import { Pools } from "./Pools.ts"

/** Maximum credentials in an explanation of several providers: 1,000 take about 7 ms. */
const maxCredentials = 5000

/** Approximate memory for each credential while explaining, in bytes. */
const explainedBytes = 3000

const tooManyCredentials = InvalidParams.of({
  path: ["targets"],
  message: `must name fewer providers: these have more than ${maxCredentials} credentials`
})

const unknownApiKey = InvalidParams.of({ path: ["api_key_hash"], message: "is not an API key of this account" })

const notForRouting = InvalidParams.of({
  path: ["api_key_hash"],
  message: "must be that of an ordinary API key: a management key or a viewer's cannot route"
})

/** Minimum credentials in an explanation for it to be cached. */
const minCached = 16

/** Approximate memory of a cached explanation beside its texts, in bytes. */
const overheadBytes = 500

/**
 * An encoded explanation, with the request and the snapshots of pools that it is valid for. It does not refer to the
 * pools, so it keeps none in memory.
 */
interface CachedBody {
  readonly body: Uint8Array
  readonly request: string
  /** Serial numbers of the snapshots: every new snapshot has another one. */
  readonly serials: string
  /** End of the first cooldown or trial in it, by the monotonic clock. */
  readonly valid_until: number
  readonly reservation: Reservation
}

/** Makes explanations and statuses from the pools that routers read. `verifies`: whether the pools verify rows. */
const make = Effect.fnUntraced(function* (verifies: boolean) {
  const { current, currentForKey, inTurn, throttled } = yield* Pools
  const budget = yield* MemoryBudget
  const clock = yield* Clock.Clock
  const credentials = yield* CredentialRepository
  const uses = yield* CredentialUse
  const parkings = yield* Parkings
  const withinDeadline = withDeadline(yield* RequestTimeout)

  /** Reads the pools of the requested providers. Refuses several providers with too many credentials. */
  const prepare = Effect.fnUntraced(function* (account_id: AccountId, requested: PlanRequest) {
    const providers = requested.targets.map(({ provider }) => provider)
    const { api_key_hash } = requested
    const pools =
      api_key_hash === null
        ? current({ ...requested, account_id }, providers)
        : currentForKey({ ...requested, account_id, api_key_hash }, providers)
    const { snapshots, workspace_id } = yield* Effect.catchTags(pools, {
      UnknownWorkspace: () => InvalidParams.of(workspaceIssue(requested.workspace_id)),
      UnknownApiKey: () => unknownApiKey,
      ApiKeyMayNotRoute: () => notForRouting
    })
    const members = snapshots.reduce((sum, { pool }) => sum + pool.length, 0)
    if (providers.length > 1 && members > maxCredentials) return yield* tooManyCredentials
    const poolOf = (provider: Provider) => snapshots[providers.indexOf(provider)]?.pool ?? []
    return { request: { ...requested, account_id, workspace_id }, snapshots, members, poolOf }
  })
  type Prepared = Effect.Success<ReturnType<typeof prepare>>

  const explain = Effect.fnUntraced(function* ({ poolOf, request }: Prepared) {
    const now = momentOf(clock)
    let valid_until = Number.POSITIVE_INFINITY
    const availabilityNow = ({ key_version, leaked, stored }: PooledCredential) => {
      const availability = availabilityOf(healthIn(stored, key_version, request.model, now.monotonic), leaked, now)
      if (availability._tag !== "Free" && availability.until !== null) {
        valid_until = Math.min(valid_until, now.monotonic + availability.until - now.wall)
      }
      return availability
    }
    const plan = yield* throttled(() => planFor(request, poolOf, availabilityNow))
    return { explanation: yield* throttled(() => explanationOf(request, plan, poolOf)), valid_until }
  })

  /** The last explanation of each set of pools. */
  const bodies = new Map<string, CachedBody>()
  const evict = (poolsKey: string) => {
    bodies.get(poolsKey)?.reservation.release()
    bodies.delete(poolsKey)
  }
  /** Caches a body if memory allows. Its memory counts for no account. */
  const cache = (poolsKey: string, entry: Omit<CachedBody, "reservation">) => {
    evict(poolsKey)
    const reservation = budget.reserve("", "page")
    const bytes = entry.body.length + 2 * entry.request.length + overheadBytes
    if (!reservation.grow(bytes, () => {})) return reservation.release()
    bodies.set(poolsKey, { ...entry, reservation })
    reservation.makeEvictable(() => evict(poolsKey))
  }

  const explainedBody = Effect.fnUntraced(function* (
    account_id: AccountId,
    requested: PlanRequest,
    memory: PageMemory
  ) {
    const prepared = yield* prepare(account_id, requested)
    const { members, request } = prepared
    yield* memory.admit(explainedBytes * members)
    const requestText = JSON.stringify(request)
    const serials = prepared.snapshots.map(({ serial }) => serial).join()
    const poolsKey = `${account_id} ${request.workspace_id} ${request.targets.map(({ provider }) => provider).join()}`
    const findCached = () => {
      const cached = bodies.get(poolsKey)
      if (cached?.request !== requestText || cached.serials !== serials) return undefined
      if (monotonicMillis(clock) >= cached.valid_until) return undefined
      cached.reservation.touch()
      return cached.body
    }
    const explainUnlessCached = Effect.gen(function* () {
      // Another request may have cached it while this one waited for its turn.
      const cachedBody = findCached()
      if (cachedBody !== undefined) return cachedBody
      const { explanation, valid_until } = yield* explain(prepared)
      const body = yield* throttled(() => explanationBody(explanation))
      if (members >= minCached) cache(poolsKey, { body, request: requestText, serials, valid_until })
      return body
    })
    return findCached() ?? (yield* inTurn(account_id, explainUnlessCached))
  })

  /** The statuses of credentials of one workspace, read together. */
  const statuses = Effect.fnUntraced(function* (account_id: AccountId, listed: ReadonlyArray<Credential>) {
    const [first] = listed
    if (first === undefined) return []
    const ids = listed.map(({ id }) => id)
    // A provider that only another version of this service knows has a pool too, so any name is passed.
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
      // A credential that its pool lacks was deleted meanwhile. In a deleted workspace, all have a status, but no pool.
      if (snapshots !== undefined && pooled === undefined) return null
      return statusOf(credential, pooled, parked.get(id) ?? [], used.get(id) ?? neverUsed)
    })
  })

  const status = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId) {
    const credential = yield* credentials.findById(account_id, id)
    const [status = null] = yield* statuses(account_id, Option.toArray(credential))
    return status ?? (yield* new NotFound())
  })

  return Explanations.of({
    explain: (request) =>
      withinDeadline(
        ifAllowed("plan", (account_id) =>
          Effect.flatMap(prepare(account_id, request), (prepared) =>
            Effect.map(inTurn(account_id, explain(prepared)), ({ explanation }) => explanation)
          )
        )
      ),
    explainedBody: (request, memory) =>
      withinDeadline(ifAllowed("plan", (account_id) => explainedBody(account_id, request, memory))),
    statuses: (listed) => withinDeadline(ifAllowed("status", (account_id) => statuses(account_id, listed))),
    status: (id) => withinDeadline(ifAllowed("status", (account_id) => status(account_id, id))),
    verifies
  })
})

export const layer = Layer.provide(Layer.effect(Explanations, make(true)), Pools.layer)

/** Explanations without a keyring, which assume that every row matches its seal. */
export const layerUnverified = Layer.provide(Layer.effect(Explanations, make(false)), Pools.layerUnverified)
