import { Context, Duration, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { CredentialId } from "../../../src/domain/Identifiers.ts"
import type { PoolOwner } from "../../../src/port/CredentialPools.ts"
import type { Credentials } from "../../../src/port/Credentials.ts"
import { LeakedKeys } from "../../../src/port/LeakedKeys.ts"
import { Parkings } from "../../../src/port/Parkings.ts"
import type { PlannedRequest } from "../../../src/service/routing/PlannedRequest.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { create, remove, update } from "../../support/service/asTenant.ts"
import { requestOf } from "../../support/service/planning.ts"

/** A change of a credential that is acknowledged, or for `edit` committed behind the service's back. */
export type Change = "disable" | "enable" | "forbid" | "allow" | "key" | "require" | "park" | "unpark" | "leak"
export type LastChange = "delete" | "edit"

/** What is done to one credential, one change after the other, on either instance, each after a pause. */
export interface Writer {
  readonly changes: ReadonlyArray<{ readonly change: Change; readonly side: 0 | 1; readonly pause: number }>
  readonly last: LastChange | undefined
}

/** Plans on one instance, each after a pause, with leases of its steps after another. Pauses are in milliseconds. */
export interface Reader {
  readonly side: 0 | 1
  readonly plans: ReadonlyArray<{ readonly pause: number; readonly freshness: number; readonly leaseAfter: number }>
}

/** What runs at a time on a pool of its own. */
export interface Scene {
  readonly writers: ReadonlyArray<Writer>
  readonly readers: ReadonlyArray<Reader>
}

/** The services of one instance. */
export type Instance = Context.Context<Credentials | LeakedKeys | Parkings | Router>

/** What a plan may say of a credential, and whether it keeps shared capacity. */
interface State {
  readonly isThere: boolean
  readonly disabled: boolean
  readonly forbidden: boolean
  readonly required: boolean
  readonly altered: boolean
  readonly parked: "rejected" | "leaked" | undefined
  readonly key_version: number
}

/** A state of a credential: when the change to it began, and when it was acknowledged. */
interface Entry {
  readonly state: State
  readonly began: number
  acknowledged: number
}

const initially: State = {
  isThere: true,
  disabled: false,
  forbidden: false,
  required: false,
  altered: false,
  parked: undefined,
  key_version: 1
}

/** What a change makes of a state. */
const effects: Readonly<Record<Change | LastChange, (state: State) => Partial<State>>> = {
  disable: () => ({ disabled: true }),
  enable: () => ({ disabled: false }),
  forbid: () => ({ forbidden: true }),
  allow: () => ({ forbidden: false }),
  require: ({ required }) => ({ required: !required }),
  key: ({ key_version }) => ({ parked: undefined, key_version: key_version + 1 }),
  park: ({ parked = "rejected" }) => ({ parked }),
  unpark: ({ parked }) => ({ parked: parked === "leaked" ? parked : undefined }),
  leak: () => ({ parked: "leaked" }),
  edit: () => ({ altered: true }),
  delete: () => ({ isThere: false })
}

/** What a plan says of a credential in a state. */
const seenOf = ({ altered, disabled, forbidden, isThere, key_version, parked }: State): string => {
  if (!isThere) return "absent"
  const reasons = [
    ...(altered ? ["altered"] : []),
    ...(disabled ? ["disabled"] : []),
    ...(forbidden ? ["model_not_allowed"] : []),
    ...(parked === undefined ? [] : [parked])
  ]
  return reasons.length === 0 ? `key ${key_version}` : reasons.join()
}

const forbidsShared = ({ altered, disabled, isThere, required }: State) =>
  isThere && (altered || (required && !disabled))

/** The states that a reader may have seen who asked about a time from `from` to `until`. */
const between = (history: ReadonlyArray<Entry>, from: number, until: number): ReadonlyArray<State> => {
  const last = history.findLastIndex(({ acknowledged }) => acknowledged < from)
  return history.filter(({ began }, index) => index >= last && began <= until).map(({ state }) => state)
}

/** What a plan said of a credential. */
const saidOf = ({ providers, steps }: PlannedRequest, id: CredentialId): string => {
  const verdict = providers[0]?.credentials.find(({ credential_id }) => credential_id === id)
  if (verdict === undefined) return "absent"
  const reasons = verdict.exclusions.map((exclusion) =>
    exclusion.reason === "parked" ? exclusion.cause : exclusion.reason === "seal" ? exclusion.seal : exclusion.reason
  )
  if (reasons.length > 0) return reasons.join()
  const step = steps.find((step) => step._tag === "Own" && step.credential_id === id)
  return step?._tag === "Own" ? `key ${step.key_version}` : "no step"
}

const pauseFor = (milliseconds: number) =>
  Effect.promise(() => new Promise<void>((done) => void setTimeout(done, milliseconds)))

const hour = 3_600_000

/** How long a lease may go by what was true before it began, in milliseconds. */
const leaseFreshness = 1000

/** What was seen that must not be, and how much was seen at all. */
export interface Findings {
  readonly stale: Array<string>
  readonly counts: { plans: number; offered: number; leased: number; refused: number }
}

/** Plays a scene on two instances and compares what plans and leases saw with what had been acknowledged. */
export const play = Effect.fnUntraced(function* (
  [here, there]: readonly [Instance, Instance],
  sql: SqlClient.SqlClient,
  owner: PoolOwner,
  { readers, writers }: Scene
) {
  const instance = (side: 0 | 1) => (side === 0 ? here : there)
  const findings: Findings = { stale: [], counts: { plans: 0, offered: 0, leased: 0, refused: 0 } }
  const { counts, stale } = findings
  const keyOf = (n: number) => `sk-fake-0123456789-${n}-0123456789`

  const credentials = yield* Effect.forEach(writers, (writer) =>
    Effect.gen(function* () {
      const { id } = yield* Effect.provide(create(owner, { key: keyOf(0) }), here)
      const history: Array<Entry> = [{ state: initially, began: 0, acknowledged: 0 }]
      return { id, history, writer, parked: { epoch: 0 } }
    })
  )

  const write = Effect.fnUntraced(function* (
    { history, id, parked }: (typeof credentials)[number],
    change: Change | LastChange,
    side: 0 | 1
  ) {
    const { conclude } = Context.get(instance(side), LeakedKeys)
    const { store } = Context.get(instance(side), Parkings)
    const state = history.at(-1)?.state ?? initially
    const key = { ...owner, credential_id: id, key_version: state.key_version }
    const parking = { ...key, model: "", cause: "rejected", strikes: 1, remaining: hour } as const
    const ended = { ...parking, cause: null, strikes: 0, remaining: null } as const
    const updated = (changes: object) => Effect.provide(update(owner, id, changes), instance(side))
    const done: Record<Change | LastChange, Effect.Effect<unknown, unknown>> = {
      disable: updated({ disabled: true }),
      enable: updated({ disabled: false }),
      forbid: updated({ allowed_models: ["a/other"] }),
      allow: updated({ allowed_models: null }),
      require: updated({ is_required: !state.required }),
      key: updated({ key: keyOf(state.key_version) }),
      park: Effect.suspend(() => store([{ ...parking, epoch: parked.epoch }])),
      unpark: Effect.suspend(() => store([{ ...ended, epoch: (parked.epoch += 1) }])),
      leak: conclude({ found: [key], searched: 1, park: true }),
      delete: Effect.provide(remove(owner, id), instance(side)),
      edit: sql.withTransaction(
        Effect.andThen(
          sql`
            UPDATE pools SET version = version + 1
            WHERE account_id = ${owner.account_id} AND workspace_id = ${owner.workspace_id}`,
          sql`UPDATE credentials SET declared_zdr = false WHERE id = ${id}`
        )
      )
    }
    const entry: Entry = {
      state: { ...state, ...effects[change](state) },
      began: performance.now(),
      acknowledged: Infinity
    }
    history.push(entry)
    yield* done[change]
    entry.acknowledged = performance.now()
  })

  const writing = Effect.forEach(
    credentials,
    (credential) =>
      Effect.gen(function* () {
        for (const { change, pause, side } of credential.writer.changes) {
          yield* pauseFor(pause)
          yield* write(credential, change, side)
        }
        if (credential.writer.last !== undefined) yield* write(credential, credential.writer.last, 0)
      }),
    { concurrency: "unbounded", discard: true }
  )

  const request = requestOf(owner)

  const reading = Effect.forEach(
    readers,
    ({ plans, side }) =>
      Effect.gen(function* () {
        const { lease, plan } = Context.get(instance(side), Router)
        for (const { freshness, leaseAfter, pause } of plans) {
          yield* pauseFor(pause)
          const asked = performance.now()
          const planned = yield* plan(request, freshness === 0 ? "now" : Duration.millis(freshness))
          const answered = performance.now()
          counts.plans += 1
          const possible = credentials.map(({ history }) => between(history, asked - freshness, answered))
          for (const [index, { id }] of credentials.entries()) {
            const said = saidOf(planned, id)
            if (said.startsWith("key")) counts.offered += 1
            const allowed = possible[index]?.map(seenOf) ?? []
            if (!allowed.includes(said)) stale.push(`a plan of ${freshness} said ${said}, not ${allowed.join(" or ")}`)
          }
          const isShared = planned.steps.some(({ _tag }) => _tag === "Shared")
          const mayBe = isShared
            ? possible.every((states) => states.some((state) => !forbidsShared(state)))
            : possible.some((states) => states.some(forbidsShared))
          if (!mayBe) stale.push(`a plan of ${freshness} was ${isShared ? "" : "not "}shared`)

          yield* pauseFor(leaseAfter)
          for (const step of planned.steps) {
            if (step._tag !== "Own") continue
            const began = performance.now()
            const found = yield* Effect.result(Effect.scoped(lease(planned, step)))
            if (found._tag === "Failure") {
              counts.refused += 1
              continue
            }
            counts.leased += 1
            const history = credentials.find(({ id }) => id === step.credential_id)?.history ?? []
            const allowed = between(history, began - Math.max(leaseFreshness, freshness), performance.now()).map(seenOf)
            if (!allowed.includes(`key ${step.key_version}`)) {
              stale.push(`a lease of key ${step.key_version} in ${allowed.join(" or ")}`)
            }
          }
        }
      }),
    { concurrency: "unbounded", discard: true }
  )

  yield* Effect.all([writing, reading], { concurrency: "unbounded", discard: true })
  return findings
})
