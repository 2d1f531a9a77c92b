import { Cause, Effect, Exit, Redacted } from "effect"
import { isDeepStrictEqual } from "node:util"
import type { Credential } from "../../src/domain/Credential.ts"
import { InvalidParams, NotFound } from "../../src/domain/Errors.ts"
import { IdempotencyKey } from "../../src/domain/Identifiers.ts"
import type { NewCredential } from "../../src/domain/NewCredential.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { broken, isAway, type Moment } from "./Broken.ts"
import { poolNameOf, type Services, textOf } from "./Instance.ts"
import type { Deeds, Scene } from "./Scene.ts"
import { changedNames, type Created, type State } from "./StoreLog.ts"
import { changes, inputs, providers, type Tenant, tenantAt, tenants } from "./Tenants.ts"

/** On behalf of a tenant: in process, or by its API key. */
const as = <A, E>(
  { account_id, hash }: Tenant,
  asked: Effect.Effect<A, E, Services | CurrentPrincipal>,
  isInProcess: boolean
): Effect.Effect<A, E, Services> =>
  Effect.provideService(
    asked,
    CurrentPrincipal,
    isInProcess
      ? { kind: "in_process", account_id }
      : { kind: "api_key", account_id, api_key_hash: hash, role: "management" }
  )

const idsOf = ({ rows }: State) =>
  rows
    .toSorted((one, other) => one.credential.sort_order - other.credential.sort_order)
    .map(({ credential }) => credential.id)

/** What people do to credentials: what was acknowledged is there, once; what was refused is not. */
export const credentialDeeds = (scene: Scene): Deeds<"create" | "update" | "delete" | "get" | "pry" | "order"> => {
  const { log } = scene
  const isEven = (n: number) => n % 2 === 0
  const statesOf = ({ provider, tenant }: Omit<Created, "id">, from: Moment) =>
    log.statesSince(poolNameOf(tenant, provider), from, 0)
  const rowsOf = (target: Created, from: Moment) =>
    statesOf(target, from).map(({ rows }) => rows.find(({ credential }) => credential.id === target.id))

  return {
    create: ({ body, idem, provider: p, tenant: t }, act, instance) => {
      const tenant = tenantAt(t)
      const input = inputs[p]?.[idem === null ? body : isEven(body) ? idem : 2]
      const key = idem === null ? undefined : IdempotencyKey.make(`idem-${idem}`)
      if (key !== undefined) act.idem = `${key} of tenant ${t}`
      const asked = Credentials.use(({ create }) => create({ ...input, name: `name ${idem ?? "-"}` } as never, key))
      return scene.ask(instance, act, as(tenant, asked, isEven(act.n)), (exit) => {
        const [commit, ...more] = log.commitsOf(act)
        if (more.length > 0) broken(`act ${act.n} has created several credentials`)
        if (Exit.isFailure(exit)) {
          if (!isAway(exit.cause) && commit !== undefined) broken(`act ${act.n} was refused, and is there`)
          return
        }
        const { credential, replayed } = exit.value
        if (!replayed && !isDeepStrictEqual(commit?.after?.credential, credential)) {
          broken(`act ${act.n} was acknowledged, and is not there`)
        }
        if (replayed && !log.hasCreated(credential)) broken(`act ${act.n} was answered by what never was`)
        if (replayed && commit !== undefined) broken(`act ${act.n} has created again what it replays`)
      })
    },

    update: ({ change, pick }, act, instance) => {
      const target = log.picked(pick)
      const changed = changes[change]
      if (target === undefined || changed === undefined) return Effect.void
      const { decoded, names } = changed
      const { id, tenant } = target
      const asked = Credentials.use(({ update }) => update(id, decoded))
      return scene.ask(instance, act, as(tenant, asked, isEven(act.n)), (exit, from) => {
        const commits = log.commitsOf(act)
        const rowsThen = rowsOf(target, from)
        if (commits.length > 1) broken(`act ${act.n} was made ${commits.length} times`)
        if (log.altered.has(id)) return
        for (const { after, before } of commits) {
          if (before === undefined || after === undefined) return broken(`act ${act.n} was no update`)
          const foreign = changedNames(before, after).filter((name) => !names.includes(name))
          if (foreign.length > 0) broken(`act ${act.n} has changed ${foreign.join()}, too`)
        }
        const has = (credential: Credential, key: string) =>
          names.every((name) =>
            name === "key"
              ? decoded.key !== undefined && key === Redacted.value(decoded.key)
              : isDeepStrictEqual(Reflect.get(credential, name), Reflect.get(decoded, name))
          )
        if (Exit.isSuccess(exit)) {
          const rows = commits.length > 0 ? commits.map(({ after }) => after) : rowsThen
          const isThere = rows.some((row) => row !== undefined && has(row.credential, textOf(row.sealed.sealed)))
          if (!isThere) broken(`act ${act.n} was acknowledged, and was never there`)
        } else if (!isAway(exit.cause)) {
          if (commits.length > 0) broken(`act ${act.n} was refused, and is there`)
          const error: unknown = Cause.squash(exit.cause)
          if (error instanceof NotFound && rowsThen.every((row) => row !== undefined)) {
            broken(`act ${act.n} did not find what was there`)
          }
          if (error instanceof InvalidParams && !names.includes("key") && !names.includes("is_required")) {
            broken(`act ${act.n} was refused: ${JSON.stringify(error)}`)
          }
        }
      })
    },

    delete: ({ pick }, act, instance) => {
      const target = isEven(pick) ? log.picked(pick) : log.pickedOfAll(pick)
      if (target === undefined) return Effect.void
      const asked = Credentials.use((credentials) => credentials.delete(target.id))
      return scene.ask(instance, act, as(target.tenant, asked, isEven(act.n)), (exit, from) => {
        const { length } = log.commitsOf(act)
        if (Exit.isSuccess(exit)) {
          if (length !== 1) broken(`act ${act.n} was acknowledged, and deleted ${length}`)
        } else if (!isAway(exit.cause) && (length > 0 || !rowsOf(target, from).includes(undefined))) {
          broken(`act ${act.n} did not delete what was there`)
        }
      })
    },

    get: ({ pick }, act, instance) => {
      const target = log.pickedOfAll(pick)
      if (target === undefined) return Effect.void
      const asked = Credentials.use(({ get }) => get(target.id))
      return scene.ask(instance, act, as(target.tenant, asked, isEven(act.n)), (exit, from) => {
        const rows = rowsOf(target, from)
        const isRight = Exit.isSuccess(exit)
          ? rows.some((row) => isDeepStrictEqual(row?.credential, exit.value))
          : isAway(exit.cause) || rows.includes(undefined)
        if (!isRight) broken(`act ${act.n} reads what never was`)
      })
    },

    pry: ({ how, pick }, act, instance) => {
      const target = log.pickedOfAll(pick)
      const other = tenants.find((tenant) => tenant !== target?.tenant)
      if (target === undefined || other === undefined) return Effect.void
      const { apiKeys, workspace_id } = target.tenant
      const input = inputs[0]?.[0] as NewCredential
      const asked = Credentials.use((credentials): Effect.Effect<unknown, unknown, CurrentPrincipal> => {
        if (how === 0) return credentials.get(target.id)
        if (how === 1) return credentials.update(target.id, { name: "theirs" })
        if (how === 2) return credentials.delete(target.id)
        return credentials.create({ ...input, ...(how === 3 ? { workspace_id } : { allowed_api_key_hashes: apiKeys }) })
      })
      return scene.ask(instance, act, as(other, asked, isEven(act.n)), (exit) => {
        if (Exit.isSuccess(exit) || log.commitsOf(act).length > 0) broken(`act ${act.n} reaches another account`)
      })
    },

    order: ({ pick, provider: p, tenant: t }, act, instance) => {
      const [tenant, provider] = [tenantAt(t), providers[p === 0 ? 0 : 1]]
      const last = log.lastState(poolNameOf(tenant, provider))
      const ids = last?.rows.map(({ credential }) => credential.id) ?? []
      const [moved] = ids.splice(pick % Math.max(1, ids.length), 1)
      if (moved !== undefined) ids.unshift(moved)
      const asked = Credentials.use(({ order }) => order({ ids, provider, workspace_id: tenant.workspace_id }))
      return scene.ask(instance, act, as(tenant, asked, isEven(act.n)), (exit, from) => {
        const states = statesOf({ provider, tenant }, from)
        if (Exit.isSuccess(exit)) {
          const isThere = states.some((state) => idsOf(state).join() === ids.join())
          if (!isThere) broken(`act ${act.n} was acknowledged, and no order is that`)
        } else if (!isAway(exit.cause) && ids.length > 0) {
          const members = ids.toSorted().join()
          const isSame = states.every((state) => !state.isGone && idsOf(state).toSorted().join() === members)
          if (isSame) broken(`act ${act.n} was refused, and names all members`)
        }
      })
    }
  }
}
