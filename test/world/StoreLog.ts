import { Context, Effect } from "effect"
import { isDeepStrictEqual } from "node:util"
import type { Credential } from "../../src/domain/Credential.ts"
import type { CredentialId, LinkId } from "../../src/domain/Identifiers.ts"
import type { Link } from "../../src/domain/Link.ts"
import { CredentialPools, type PoolRow } from "../../src/port/CredentialPools.ts"
import type { CredentialRow, Memory } from "../support/memory/Memory.ts"
import { broken, type Moment } from "./Broken.ts"
import { type Act, mostMembers, poolNameOf, type Shared } from "./Instance.ts"
import { providers, type Tenant, tenantOf, tenants } from "./Tenants.ts"

/** A state of a pool in the database, and the moment when it began. */
export interface State extends Moment {
  readonly version: string
  readonly health: string
  readonly rows: ReadonlyArray<PoolRow>
  readonly leaked: ReadonlySet<CredentialId>
  /** Whether its workspace was deleted: its rows serve no request. */
  readonly isGone: boolean
}

/** The change of a credential by one statement. */
interface Commit {
  readonly act: Act | undefined
  readonly before: CredentialRow | undefined
  readonly after: CredentialRow | undefined
}

export interface Created {
  readonly id: CredentialId
  readonly tenant: Tenant
  readonly provider: string
}

/** The members that differ in two states of a credential, as a client names them. */
export const changedNames = (was: CredentialRow, is: CredentialRow): ReadonlyArray<string> => {
  const names = Object.keys(was.credential) as ReadonlyArray<keyof Credential>
  const differing = names.filter(
    (name) => name !== "label" && !isDeepStrictEqual(was.credential[name], is.credential[name])
  )
  return is.key_version === was.key_version ? differing : [...differing, "key"]
}

type Changed<Key, Row> = readonly [key: Key, was: Row | undefined, is: Row | undefined]

/** The rows that differ. Rows are compared by identity, because a change replaces them. */
const changedIn = <Key, Row>(before: ReadonlyMap<Key, Row>, after: ReadonlyMap<Key, Row>) => {
  const changed: Array<Changed<Key, Row>> = []
  for (const [key, was] of before) if (after.get(key) !== was) changed.push([key, was, after.get(key)])
  for (const [key, is] of after) if (!before.has(key)) changed.push([key, undefined, is])
  return changed
}

/** Records every state of the store, and checks the laws of each write. */
export class StoreLog {
  readonly #memory: Memory["Service"]
  readonly #load: CredentialPools["Service"]["load"]
  readonly #moment: () => Moment
  readonly #states = new Map<string, Array<State>>()
  readonly #commits: Array<Commit> = []
  /** The idempotency keys of all creates. */
  readonly #idempotent = new Set<string>()
  #events = 0
  /** Number of writes so far. */
  n = 0
  /** Every credential ever created. */
  readonly created: Array<Created> = []
  /** Links whose revocation was answered. */
  readonly closed = new Set<LinkId>()
  /** Rows that somebody has changed by hand. */
  readonly altered = new Set<CredentialId>()

  constructor(memory: Memory["Service"], stores: Shared["stores"], moment: () => Moment) {
    this.#memory = memory
    this.#load = Context.get(stores, CredentialPools).load
    this.#moment = moment
  }

  /** Records the states of pools that have changed. */
  note() {
    for (const tenant of tenants) for (const provider of providers) this.#note(tenant, provider)
  }

  #note(tenant: Tenant, provider: (typeof providers)[number]) {
    const loaded = Effect.runSync(this.#load(tenant, provider))
    const name = poolNameOf(tenant, provider)
    const states = this.#states.get(name) ?? []
    this.#states.set(name, states)
    const last = states.at(-1)
    if (loaded._tag === "None") {
      const rows = Array.from(this.#memory.credentials.values(), (row) => ({ ...row, row: "" })).filter(
        ({ credential }) => poolNameOf(credential, credential.provider) === name
      )
      states.push({ ...this.#moment(), version: "", health: "", rows, leaked: new Set(), isGone: true })
      return
    }
    const { health, parkings, rows = [], version } = loaded.value
    const isSame =
      last?.version === version &&
      last.health === health &&
      last.rows.every((row, index) => row.row === rows[index]?.row)
    if (isSame) return
    const leaked = rows.filter(({ credential: { id } }) => parkings.get(id)?.some(({ cause }) => cause === "leaked"))
    const ids = new Set(leaked.map(({ credential: { id } }) => id))
    states.push({ ...this.#moment(), version, health, rows, leaked: ids, isGone: false })
  }

  /** The states of a pool since a moment, or since `freshness` milliseconds before it. */
  statesSince(pool: string, from: Moment, freshness: number): ReadonlyArray<State> {
    const states = this.#states.get(pool) ?? []
    const isBefore = (state: State) => (freshness > 0 ? state.at < from.at - freshness : state.n <= from.n)
    return states.slice(Math.max(0, states.findLastIndex(isBefore)))
  }

  lastState(pool: string): State | undefined {
    return this.#states.get(pool)?.at(-1)
  }

  /** What the credential of a link is, if it stored one. */
  storedBy({ link_id }: Link): Commit | undefined {
    return this.#commits.find(({ act }) => act?.link?.link_id === link_id)
  }

  commitsOf(act: Act): ReadonlyArray<Commit> {
    return this.#commits.filter((commit) => commit.act === act)
  }

  /** Whether a credential with this id was ever stored. */
  hasCreated(credential: Credential) {
    return this.created.some(({ id }) => id === credential.id)
  }

  /** Picks one of the existing credentials. */
  picked(pick: number): Created | undefined {
    const live = this.created.filter(({ id }) => this.#memory.credentials.has(id))
    return live[pick % live.length]
  }

  /** Picks one of the credentials ever created. */
  pickedOfAll(pick: number): Created | undefined {
    return this.created[pick % this.created.length]
  }

  rowAt(pick: number): CredentialRow | undefined {
    const one = this.picked(pick)
    return one && this.#memory.credentials.get(one.id)
  }

  /** Runs a statement and checks its writes. `sweeps` gets the cooldowns before the statement. */
  carriedOut(sweeps: (parked: Memory["Service"]["parkings"]) => void): Shared["carriedOut"] {
    const writes = /^(insert|update|delete|reorder|store|conclude|clear|erase|revoke|replace)/
    return (name, act, statement) => {
      if (!writes.test(name)) return statement
      return Effect.withFiber((fiber) => {
        const { credentials, events, parkings } = this.#memory
        const before = new Map(credentials)
        const parked = new Map(parkings)
        const answer = Effect.runSyncExitWith(fiber.context)(statement)
        this.n += 1
        const changed = changedIn(before, credentials)
        for (const [id, was, is] of changed) {
          this.#commits.push({ act, before: was, after: is })
          if (act?.link !== undefined) this.#checkLink(act.link, was ?? is)
          if (was === undefined && is !== undefined) this.#noteCreated(id, is, act)
        }
        if (!name.startsWith("erase")) this.#checkEvents(name, act, changed, events.slice(this.#events))
        this.#events = events.length
        if (name !== "store") this.#checkCounts()
        else if (changedIn(parked, parkings).length === 0) return answer
        sweeps(parked)
        this.note()
        return answer
      })
    }
  }

  /** A link writes only while it is open, in its workspace, and once unless it is to manage keys. */
  #checkLink({ link_id, purpose, workspace_id }: Link, row: CredentialRow | undefined) {
    if (row?.credential.workspace_id !== workspace_id) broken("a link writes in another workspace")
    if (this.closed.has(link_id)) broken("a link writes that was revoked")
    const writes = this.#commits.filter(({ act }) => act?.link?.link_id === link_id)
    if (purpose !== "manage" && writes.length > 1) broken(`a link to ${purpose} has written twice`)
  }

  #noteCreated(id: CredentialId, { account_id, credential }: CredentialRow, act: Act | undefined) {
    if (act?.idem !== undefined) {
      if (this.#idempotent.has(act.idem)) broken(`${act.idem} has created two credentials`)
      this.#idempotent.add(act.idem)
    }
    const tenant = tenantOf(account_id) ?? broken("a credential is in no account")
    const workspace = this.#memory.workspaces.get(credential.workspace_id)
    if (workspace?.deleted_at !== null) broken("a credential was created in a workspace that is gone")
    this.created.push({ id, tenant, provider: credential.provider })
  }

  /** Every write has one event, every event one write, and the event names who acted. */
  #checkEvents(
    name: string,
    act: Act | undefined,
    changed: ReadonlyArray<Changed<CredentialId, CredentialRow>>,
    events: Memory["Service"]["events"]
  ) {
    if (changed.length === 0 && events.length === 0) return
    const expected: Array<string> = []
    for (const [id, was, is] of changed) {
      if (was === undefined) expected.push(`credential.create ${id}`)
      else if (is === undefined) expected.push(`credential.delete ${id}`)
      else if (name !== "reorder") {
        if (this.altered.has(id)) return
        expected.push(`credential.update ${id} ${is.revision} ${changedNames(was, is).toSorted().join()}`)
        if (is.key_version > was.key_version) expected.push(`credential.rotate ${id}`)
      } else if (!expected.includes("credential.reorder")) expected.push("credential.reorder")
    }
    const recorded = events.map((event) => {
      const id = "credential_id" in event ? ` ${event.credential_id}` : ""
      const more = event.action === "credential.update" ? ` ${event.revision} ${event.fields.toSorted().join()}` : ""
      const { actor } = event
      const isRight =
        actor.kind === "link"
          ? actor.link_id === act?.link?.link_id
          : act?.link === undefined && (actor.kind === "api_key" || actor.kind === "in_process")
      if (!isRight) broken(`${event.action} was recorded as done by ${actor.kind}`)
      return event.action + id + more
    })
    const [are, should] = [recorded, expected].map((one) => one.toSorted().join("; "))
    if (are !== should) broken(`the events of ${name} are ${are}, not ${should}`)
  }

  /** The counts, bytes and order of a pool are those of its rows; an erased account has no rows. */
  #checkCounts() {
    const { accounts, credentials, pools } = this.#memory
    for (const tenant of tenants) {
      const own = Array.from(credentials.values()).filter(({ account_id }) => account_id === tenant.account_id)
      if (!accounts.has(tenant.account_id) && own.length > 0) broken("an account that was erased has credentials")
      for (const provider of providers) {
        const count = pools.get(poolNameOf(tenant, provider))
        const rows = own.filter(({ credential }) => credential.provider === provider)
        if (count === undefined && this.lastState(poolNameOf(tenant, provider))?.isGone === true) continue
        const { bytes, members, next_order } = count ?? { members: 0, bytes: 0, next_order: 0 }
        const total = rows.reduce((sum, { sealed }) => sum + sealed.sealed.length, 0)
        const orders = rows.map(({ credential }) => credential.sort_order)
        if (members !== rows.length || bytes !== total) {
          broken(`a pool counts ${members} members and ${bytes} bytes, not ${rows.length} and ${total}`)
        }
        if (rows.length > mostMembers) broken(`a pool has ${rows.length} members`)
        if (orders.some((order) => order >= next_order)) broken("the next order of a pool is taken")
        if (new Set(orders).size < orders.length) broken("two members of a pool have one order")
      }
    }
  }

  /** Changes a row without the service. */
  edit(pick: number, change: (row: CredentialRow) => CredentialRow) {
    const row = this.rowAt(pick)
    if (row === undefined) return
    this.n += 1
    const changed = change(row)
    const pool = this.#memory.pools.get(poolNameOf(row.credential, row.credential.provider))
    if (pool !== undefined) pool.bytes += changed.sealed.sealed.length - row.sealed.sealed.length
    this.#memory.credentials.set(row.credential.id, changed)
    this.note()
  }
}
