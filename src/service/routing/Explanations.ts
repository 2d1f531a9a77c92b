import { Clock, Effect, Layer, Option } from "effect"
import type { Credential } from "../../domain/Credential.ts"
import { InvalidParams, NotFound } from "../../domain/Errors.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { ifAllowed } from "../../domain/Principal.ts"
import type { Provider } from "../../domain/Provider.ts"
import { statusOf } from "../../domain/routing/CredentialStatus.ts"
import type { Explanation } from "../../domain/routing/Explanation.ts"
import { explanationOf } from "../../domain/routing/explanationOf.ts"
import { availabilityOf, healthIn, momentOf } from "../../domain/routing/Health.ts"
import { planFor } from "../../domain/routing/planFor.ts"
import type { PlanRequest } from "../../domain/routing/RoutingRequest.ts"
import { neverUsed } from "../../domain/routing/LastUse.ts"
import { CredentialRepository, type PageMemory } from "../../port/CredentialRepository.ts"
import { CredentialUse } from "../../port/CredentialUse.ts"
import { RequestTimeout, withDeadline } from "../../runtime/Deadline.ts"
import { Explanations } from "../../port/Explanations.ts"
import { Parkings } from "../../port/Parkings.ts"
import { workspaceIssue } from "../credentials/Ownership.ts"
import { Pools, tooManyCredentials } from "./Pools.ts"

/** Approximate memory for each credential while explaining, in bytes. */
const explainedBytes = 3000

const unknownApiKey = InvalidParams.of({ path: ["api_key_hash"], message: "is not an API key of this account" })

const notForRouting = InvalidParams.of({
  path: ["api_key_hash"],
  message: "must be that of an ordinary API key: a management key or a viewer's cannot route"
})

/** Makes explanations and statuses from the pools that routers read. `verifies`: whether the pools verify rows. */
const make = Effect.fnUntraced(function* (verifies: boolean) {
  const { current, currentForKey } = yield* Pools
  const clock = yield* Clock.Clock
  const credentials = yield* CredentialRepository
  const uses = yield* CredentialUse
  const parkings = yield* Parkings
  const withinDeadline = withDeadline(yield* RequestTimeout)

  const explain = Effect.fnUntraced(function* (account_id: AccountId, requested: PlanRequest, memory?: PageMemory) {
    const providers = requested.targets.map(({ provider }) => provider)
    const { api_key_hash } = requested
    const pools =
      api_key_hash === null
        ? current({ ...requested, account_id }, providers)
        : currentForKey({ ...requested, account_id, api_key_hash }, providers)
    const { snapshots, workspace_id } = yield* Effect.catchTags(pools, {
      UnknownApiKey: () => unknownApiKey,
      ApiKeyMayNotRoute: () => notForRouting,
      UnknownWorkspace: () => InvalidParams.of(workspaceIssue(requested.workspace_id)),
      TooManyCredentials: () => InvalidParams.of(tooManyCredentials)
    })
    if (memory !== undefined)
      yield* memory.take(explainedBytes * snapshots.reduce((sum, { pool }) => sum + pool.length, 0))
    const request = { ...requested, account_id, workspace_id }
    const poolOf = (provider: Provider) => snapshots[providers.indexOf(provider)]?.pool ?? []
    const now = momentOf(clock)
    const plan = planFor({
      request,
      poolOf,
      availabilityOf: ({ key_version, leaked, stored }) =>
        availabilityOf(healthIn(stored, key_version, request.model, now.monotonic), leaked, now)
    })
    const explanation = explanationOf(request, plan, poolOf)
    const explained: Array<Explanation["providers"][number]> = []
    for (const provider of explanation.providers) {
      explained.push(provider)
      yield* Effect.yieldNow
    }
    return { ...explanation, providers: explained }
  })

  /** The statuses of credentials of one workspace, read together. */
  const statuses = Effect.fnUntraced(function* (account_id: AccountId, listed: ReadonlyArray<Credential>) {
    const [first] = listed
    if (first === undefined) return []
    const ids = listed.map(({ id }) => id)
    // A provider that only another version of this service knows has a pool too, so any name is passed.
    const providers = Array.from(new Set(listed.map(({ provider }) => provider as Provider)))
    const { workspace_id } = first
    const pools = yield* Effect.forEach(
      providers,
      (provider) =>
        current({ account_id, workspace_id }, [provider]).pipe(
          Effect.map(({ snapshots: [snapshot] }) => snapshot),
          Effect.catchTags({
            UnknownWorkspace: () => Effect.succeed(undefined),
            // One provider has at most MAX_CREDENTIALS, which is less.
            TooManyCredentials: (error) => Effect.die(error)
          })
        ),
      { concurrency: "unbounded" }
    )
    const parked = yield* parkings.find(account_id, ids)
    const used = yield* uses.find(account_id, ids)
    return listed.map((credential) => {
      const { id, provider } = credential
      const pool = pools[providers.indexOf(provider as Provider)]
      const pooled = pool?.byId.get(id)
      // A credential that its pool lacks was deleted meanwhile. In a deleted workspace, all have a status, but no pool.
      if (pool !== undefined && pooled === undefined) return null
      return statusOf(credential, pooled, parked.get(id) ?? [], used.get(id) ?? neverUsed)
    })
  })

  const status = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId) {
    const credential = yield* credentials.findById(account_id, id)
    const [status = null] = yield* statuses(account_id, Option.toArray(credential))
    return status ?? (yield* new NotFound())
  })

  return Explanations.of({
    explain: (request, memory) =>
      withinDeadline(ifAllowed("plan", (account_id) => explain(account_id, request, memory))),
    statuses: (listed) => withinDeadline(ifAllowed("status", (account_id) => statuses(account_id, listed))),
    status: (id) => withinDeadline(ifAllowed("status", (account_id) => status(account_id, id))),
    verifies
  })
})

export const layer = Layer.provide(Layer.effect(Explanations, make(true)), Pools.layer)

/** Explanations without a keyring, which assume that every row matches its seal. */
export const layerUnverified = Layer.provide(Layer.effect(Explanations, make(false)), Pools.layerUnverified)
