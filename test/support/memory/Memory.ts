import { isDeepStrictEqual } from "node:util"
import { Context, DateTime, Effect, Layer, Option, Result } from "effect"
import type { AuditAct } from "../../../src/domain/AuditEvent.ts"
import { type Credential, listNames } from "../../../src/domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, LinkId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { inconclusiveLabel } from "../../../src/domain/KeyMaterial.ts"
import type { Link, LinkKeyPair } from "../../../src/domain/Link.ts"
import { actingPrincipal, type Actor, actorOf, type Principal } from "../../../src/domain/Principal.ts"
import { multiSecretProviders } from "../../../src/domain/Provider.ts"
import {
  type Cooldown,
  join,
  longestCooldown,
  monotonicMillis,
  sweptAfter,
  initialCooldown
} from "../../../src/domain/routing/Health.ts"
import { mergeUses, neverUsed } from "../../../src/domain/routing/LastUse.ts"
import { contextOf, type SealedKey } from "../../../src/domain/SealedKey.ts"
import {
  type Account,
  AccountRepository,
  type ApiKeyRecord,
  type NewApiKey,
  type Workspace,
  WorkspaceResolver
} from "../../../src/port/AccountRepository.ts"
import { ApiKeys } from "../../../src/port/ApiKeys.ts"
import { CredentialPools, type StoredParking } from "../../../src/port/CredentialPools.ts"
import {
  type CredentialPage,
  CredentialRepository,
  PoolFull,
  PoolLimits,
  type UnstoredCredential,
  WorkspaceGone
} from "../../../src/port/CredentialRepository.ts"
import { CredentialUse, type UsedCredential } from "../../../src/port/CredentialUse.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import { type KeyReference, LeakedKeys } from "../../../src/port/LeakedKeys.ts"
import { LinkClosed, LinkRepository, type LinkState } from "../../../src/port/Links.ts"
import { Parkings } from "../../../src/port/Parkings.ts"
import type { Parking } from "../../../src/domain/routing/CredentialStatus.ts"
import { type IdempotencyRecord, IdempotencyRecords } from "../../../src/port/IdempotencyRecords.ts"

interface Owned {
  readonly account_id: AccountId
}
export interface CredentialRow extends Owned {
  readonly credential: Credential
  readonly sealed: SealedKey
  readonly revision: number
  readonly key_version: number
}
export interface ApiKeyRow extends Owned, ApiKeyRecord {}
interface IdempotencyRecordRow extends Owned, IdempotencyRecord {
  readonly credential_id: CredentialId
  readonly created_at: DateTime.Utc
}

/** A link, and its key pair while it is open. */
interface LinkRow extends Link {
  readonly hash: ApiKeyHash
  readonly ended: "used" | "revoked" | null
  readonly keys: LinkKeyPair | undefined
  readonly stored_label: string | null
}

/** What routers have seen of a key, by credential and model. */
interface ParkingRow extends Cooldown {
  readonly credential_id: CredentialId
  readonly model: string
  readonly parked_at?: number
}

/** What the row of a pool counts. */
interface PoolCount {
  members: number
  bytes: number
  next_order: number
}

interface MemoryKek {
  readonly check_value: Uint8Array
  wraps: number
  retired: boolean
}

const newMemory = () => ({
  accounts: new Map<AccountId, Account>(),
  /** Accounts that were erased. */
  erased: new Set<AccountId>(),
  workspaces: new Map<WorkspaceId, Owned & Workspace>(),
  apiKeys: new Map<ApiKeyHash, ApiKeyRow>(),
  credentials: new Map<CredentialId, CredentialRow>(),
  /** By workspace and provider. */
  pools: new Map<string, PoolCount>(),
  /** What was done to credentials, with each write. */
  events: new Array<AuditAct & { readonly actor: Actor }>(),
  records: new Map<string, IdempotencyRecordRow>(),
  links: new Map<LinkId, LinkRow>(),
  keks: new Map<string, MemoryKek>(),
  /** The versions of keys that are marked as leaked, by credential. */
  marks: new Map<CredentialId, number>(),
  parkings: new Map<string, ParkingRow>(),
  uses: new Map<CredentialId, UsedCredential>()
})

/** The data of a database, empty for every build of the layer. Tests may read and change it. */
export class Memory extends Context.Service<Memory, ReturnType<typeof newMemory>>()("byok/test/Memory") {
  static readonly layer = Layer.sync(this, newMemory)
}

/** The row, if it exists and belongs to the account. */
const ownRow = <Key, Row extends Owned>(rows: ReadonlyMap<Key, Row>, account_id: AccountId, key: Key) => {
  const row = rows.get(key)
  return row?.account_id === account_id ? Option.some(row) : Option.none()
}

const ofAccount = <Row extends Owned>(rows: ReadonlyMap<unknown, Row>, account_id: AccountId) =>
  Array.from(rows.values()).filter((row) => row.account_id === account_id)

interface Dated {
  readonly created_at: DateTime.Utc
}
const inOrder =
  <Row extends Dated>(keyOf: (row: Row) => string) =>
  (one: Row, other: Row) =>
    one.created_at.epochMilliseconds - other.created_at.epochMilliseconds || (keyOf(one) < keyOf(other) ? -1 : 1)

/** The order in which the credentials of a pool are tried, whatever their section. */
const byPlace = (one: Credential, other: Credential) =>
  one.sort_order - other.sort_order ||
  one.created_at.epochMilliseconds - other.created_at.epochMilliseconds ||
  (one.id < other.id ? -1 : 1)

const nameOf = (account_id: AccountId, key_hash: Uint8Array) => `${account_id} ${Buffer.from(key_hash).toString("hex")}`

const countOf = ({ pools }: Memory["Service"], { provider, workspace_id }: UnstoredCredential): PoolCount => {
  const name = `${workspace_id} ${provider}`
  const count = pools.get(name) ?? { members: 0, bytes: 0, next_order: 0 }
  pools.set(name, count)
  return count
}

const stateAt = ({ ended, expires_at }: LinkRow, now: number): LinkState =>
  ended ?? (expires_at.epochMilliseconds <= now ? "expired" : "open")

/** Makes a write for its principal. A link that is closed makes none; one that serves once ends with the credential it stored. */
const whileOpen = <A, E, R>(
  { credentials, links }: Memory["Service"],
  principal: Principal,
  write: Effect.Effect<A, E, R>,
  stored: () => CredentialId | undefined
) =>
  Effect.clockWith((clock) => {
    if (principal.kind !== "link") return write
    const link = links.get(principal.link_id)
    if (link === undefined || stateAt(link, clock.currentTimeMillisUnsafe()) !== "open")
      return Effect.die(new LinkClosed())
    return Effect.tap(write, () =>
      Effect.sync(() => {
        const credential_id = stored()
        if (credential_id === undefined || link.purpose === "manage") return
        const stored_label = credentials.get(credential_id)?.credential.label ?? null
        links.set(link.link_id, { ...link, ended: "used", credential_id, keys: undefined, stored_label })
      })
    )
  })

/** Makes a write and records its acts, as one transaction does. */
const recording = <A, E, R>(
  memory: Memory["Service"],
  write: (record: (...acts: ReadonlyArray<AuditAct>) => void) => Effect.Effect<A, E, R>
) =>
  Effect.flatMap(actingPrincipal, (principal) => {
    const actor = actorOf(principal)
    let stored: CredentialId | undefined
    const written = write((...acts) => {
      memory.events.push(...acts.map((act) => ({ ...act, actor })))
      for (const act of acts) if ("credential_id" in act) stored = act.credential_id ?? undefined
    })
    return whileOpen(memory, principal, written, () => stored)
  })

const recordedOf = (account_id: AccountId, { id, label, provider, workspace_id }: UnstoredCredential) => ({
  ...{ account_id, workspace_id, credential_id: id, provider, label }
})

type Inserted = Effect.Effect<Option.Option<Credential>, WorkspaceGone | PoolFull>

const limitsOrDefault = Effect.map(
  Effect.serviceOption(PoolLimits),
  Option.getOrElse(() => ({ credentials: 1000, bytes: 16 * 1024 * 1024 }))
)

const insertInto = (memory: Memory["Service"]): CredentialRepository["Service"]["insert"] => {
  const { credentials, keks, records, workspaces } = memory
  return (account_id, given, sealed, record) =>
    recording(memory, (recordActs) =>
      Effect.flatMap(Effect.all([DateTime.now, limitsOrDefault]), ([created_at, limits]): Inserted => {
        const name = record && nameOf(account_id, record.key_hash)
        const standing = name === undefined ? undefined : records.get(name)
        if (standing !== undefined && standing.credential_id !== given.id) return Effect.succeedNone
        const before = credentials.get(given.id)
        if (before !== undefined) {
          if (record !== undefined && standing === undefined) return Effect.die(new Error("the id is taken"))
          const again =
            before.account_id === account_id && Buffer.compare(before.sealed.wrapped_dek, sealed.wrapped_dek) === 0
          if (again) return Effect.succeedSome(before.credential)
          return record === undefined ? Effect.die(new Error("the id is taken")) : Effect.succeedNone
        }
        if (keks.get(sealed.kek_id)?.retired === true) return Effect.die(new Error("the key is retired"))
        if (Option.getOrUndefined(ownRow(workspaces, account_id, given.workspace_id))?.deleted_at !== null) {
          return Effect.fail(new WorkspaceGone())
        }
        const pool = countOf(memory, given)
        if (pool.members >= limits.credentials) {
          return Effect.fail(new PoolFull({ unit: "credentials", limit: limits.credentials }))
        }
        const credential = { ...given, created_at, sort_order: pool.next_order }
        pool.members += 1
        pool.next_order += 1
        pool.bytes += sealed.sealed.length
        recordActs({ action: "credential.create", ...recordedOf(account_id, given) })
        credentials.set(given.id, { account_id, credential, sealed, revision: 1, key_version: 1 })
        if (record !== undefined && name !== undefined) {
          records.set(name, { account_id, ...record, credential_id: given.id, created_at })
        }
        return Effect.succeedSome(credential)
      })
    )
}

const credentialRepository = Layer.unwrap(
  Effect.map(Memory, (memory) => {
    const { credentials, marks, uses, workspaces } = memory
    const selected = (account_id: AccountId, { provider, workspace_id }: Partial<CredentialPage>) =>
      ofAccount(credentials, account_id)
        .map(({ credential }) => credential)
        .filter((one) => (workspace_id ?? one.workspace_id) === one.workspace_id)
        .filter((one) => (provider ?? one.provider) === one.provider)
        .sort(inOrder(({ id }) => id))
    return Layer.mock(CredentialRepository, {
      insert: insertInto(memory),
      findById: (account_id, id) =>
        Effect.sync(() => Option.map(ownRow(credentials, account_id, id), ({ credential }) => credential)),
      findSealed: (account_id, id) =>
        Effect.sync(() =>
          Option.map(ownRow(credentials, account_id, id), ({ account_id: _, ...row }) => ({
            ...row,
            workspace_deleted: (workspaces.get(row.credential.workspace_id)?.deleted_at ?? null) !== null
          }))
        ),
      update: (account_id, { credential, fields, key_version, revision, sealed }) =>
        recording(memory, (record) =>
          Effect.sync(() => {
            const row = Option.getOrUndefined(ownRow(credentials, account_id, credential.id))
            if (row?.revision !== revision) return false
            const of = recordedOf(account_id, credential)
            record({ action: "credential.update", ...of, revision: revision + 1, fields })
            if (fields.includes("key")) record({ action: "credential.rotate", ...of, key_version })
            countOf(memory, row.credential).bytes += (sealed ?? row.sealed).sealed.length - row.sealed.sealed.length
            const { created_at, provider, sort_order, workspace_id } = row.credential
            credentials.set(credential.id, {
              account_id,
              credential: { ...credential, created_at, provider, sort_order, workspace_id },
              sealed: sealed ?? row.sealed,
              revision: revision + 1,
              key_version
            })
            return true
          })
        ),
      list: (account_id, { limit, offset, ...page }) =>
        Effect.sync(() => {
          const all = selected(account_id, page)
          return { credentials: all.slice(offset, offset + limit), total_count: all.length }
        }),
      scan: (account_id, { after, limit, provider, workspace_id }) =>
        Effect.sync(() => {
          const placeOf = ({ created_at, id, workspace_id }: Credential) =>
            `${workspace_id} ${DateTime.formatIso(created_at)} ${id}`
          return selected(account_id, { provider, ...(workspace_id === undefined ? {} : { workspace_id }) })
            .sort((one, other) => (placeOf(one) < placeOf(other) ? -1 : 1))
            .filter((one) => after === undefined || placeOf(one) > placeOf(after))
            .slice(0, limit)
            .map((credential) => ({ ...credential, state: "active" as const }))
        }),
      reorder: (account_id, { ids, ...place }) =>
        recording(memory, (record) =>
          Effect.sync(() => {
            const own = selected(account_id, place)
              .toSorted(byPlace)
              .map(({ id }) => id)
            const missing = own.filter((id) => !ids.includes(id))
            const foreign = ids.filter((id) => !own.includes(id))
            if (missing.length + foreign.length > 0) return Option.some({ missing, foreign })
            if (own.every((id, index) => id === ids[index])) return Option.none()
            record({ action: "credential.reorder", account_id, ...place, credential_ids: [...ids] })
            for (const [sort_order, id] of ids.entries()) {
              const row = credentials.get(id)
              if (row?.credential.sort_order === sort_order || row === undefined) continue
              credentials.set(id, { ...row, credential: { ...row.credential, sort_order } })
            }
            return Option.none()
          })
        ),
      delete: (account_id, id) =>
        recording(memory, (record) =>
          Effect.sync(() => {
            const row = Option.getOrUndefined(ownRow(credentials, account_id, id))
            if (row === undefined) return false
            record({ action: "credential.delete", ...recordedOf(account_id, row.credential) })
            const pool = countOf(memory, row.credential)
            pool.members -= 1
            pool.bytes -= row.sealed.sealed.length
            marks.delete(id)
            uses.delete(id)
            return credentials.delete(id)
          })
        )
    })
  })
)

const idempotencyRecords = Layer.unwrap(
  Effect.map(Memory, ({ records }) =>
    Layer.mock(IdempotencyRecords, {
      find: (account_id, key_hash) =>
        Effect.sync(() => Option.fromUndefinedOr(records.get(nameOf(account_id, key_hash))))
    })
  )
)

const workspaceResolver = Layer.effect(
  WorkspaceResolver,
  Effect.map(Memory, ({ workspaces }) => ({
    resolve: (account_id, requested) =>
      Effect.sync(() => {
        const found = ofAccount(workspaces, account_id).find(
          ({ deleted_at, is_default, workspace_id }) =>
            deleted_at === null && (requested === undefined ? is_default : workspace_id === requested)
        )
        return Option.map(Option.fromUndefinedOr(found), ({ workspace_id }) => workspace_id)
      })
  }))
)

const apiKeys = Layer.effect(
  ApiKeys,
  Effect.map(Memory, ({ apiKeys }) => ({
    find: (hash) =>
      Effect.sync(() =>
        Option.fromUndefinedOr(apiKeys.get(hash)).pipe(
          Option.filter(({ revoked_at }) => revoked_at === null),
          Option.map(({ account_id, role }) => ({ account_id, role }))
        )
      ),
    ownedBy: (account_id, hashes) =>
      Effect.sync(() => {
        const live = ofAccount(apiKeys, account_id).filter(({ revoked_at }) => revoked_at === null)
        return new Set(live.map(({ hash }) => hash).filter((hash) => hashes.includes(hash)))
      })
  }))
)

const maySeal = (keks: Memory["Service"]["keks"], kek_id: string, kek_ids: ReadonlyArray<string>) => {
  const sealing = Array.from(keks).filter(([, { retired, wraps }]) => wraps > 0 && !retired)
  return (keks.get(kek_id)?.wraps ?? 0) > 0 || sealing.length === 0 || sealing.some(([id]) => kek_ids.includes(id))
}

/** Of rows, which are replaced when they change. */
const versions = new WeakMap<CredentialRow, string>()
const versionOf = (row: CredentialRow) => {
  const known = versions.get(row)
  if (known !== undefined) return known
  const { sealed, ...rest } = row
  const version = JSON.stringify([rest, Buffer.from(sealed.sealed).toString("latin1")])
  versions.set(row, version)
  return version
}

const cursorOf = ({ account_id, credential }: CredentialRow) => `${account_id}/${credential.id}`

const kekRegistry = Layer.unwrap(
  Effect.map(Memory, ({ credentials, keks }) =>
    Layer.mock(KekRegistry, {
      register: (given) =>
        Effect.sync(() => {
          const differing = given.filter(({ check_value, kek_id }) => {
            const known = keks.get(kek_id)
            return known !== undefined && Buffer.compare(known.check_value, check_value) !== 0
          })
          if (differing.length > 0) return differing.map(({ kek_id }) => kek_id)
          for (const { check_value, kek_id } of given) {
            if (!keks.has(kek_id)) keks.set(kek_id, { check_value, wraps: 0, retired: false })
          }
          return []
        }),
      find: (kek_ids) =>
        Effect.sync(() =>
          kek_ids.flatMap((kek_id) => {
            const kek = keks.get(kek_id)
            return kek === undefined ? [] : [{ kek_id, check_value: kek.check_value, retired: kek.retired }]
          })
        ),
      sealPermission: (kek_id, kek_ids) =>
        Effect.sync(() =>
          keks.get(kek_id)?.retired === true ? "retired" : maySeal(keks, kek_id, kek_ids) ? "seals" : "foreign"
        ),
      reserve: (kek_id, kek_ids, count) =>
        Effect.sync(() => {
          const kek = keks.get(kek_id)
          if (kek === undefined || !maySeal(keks, kek_id, kek_ids)) return Option.none()
          kek.wraps += count
          return Option.some(kek.wraps)
        }),
      admit: (kek_id) =>
        Effect.sync(() => {
          const kek = keks.get(kek_id)
          if (kek?.wraps === 0 && !kek.retired) kek.wraps = 1
        }),
      recordPromotion: () => Effect.void,
      retire: (kek_id) =>
        Effect.sync(() => {
          const naming = Array.from(credentials.values()).filter(({ sealed }) => sealed.kek_id === kek_id).length
          const kek = keks.get(kek_id)
          if (kek !== undefined && naming === 0) kek.retired = true
          return naming
        }),
      countExcept: (kek_ids, limit = Number.POSITIVE_INFINITY) =>
        Effect.sync(() => {
          const named = Array.from(credentials.values(), ({ sealed }) => sealed.kek_id)
          const absent = Array.from(new Set(named))
            .filter((kek_id) => !kek_ids.includes(kek_id))
            .sort()
          return absent.map((kek_id) => ({
            kek_id,
            credentials: Math.min(named.filter((other) => other === kek_id).length, limit)
          }))
        }),
      list: Effect.sync(() => {
        const named = Array.from(credentials.values(), ({ sealed }) => sealed.kek_id)
        return Array.from(new Set([...keks.keys(), ...named]))
          .sort()
          .map((kek_id) => ({
            kek_id,
            credentials: named.filter((other) => other === kek_id).length,
            wraps: keks.get(kek_id)?.wraps ?? 0,
            retired: keks.get(kek_id)?.retired ?? false
          }))
      }),
      live: Effect.sync(() =>
        Array.from(keks)
          .filter(([, { retired }]) => !retired)
          .map(([kek_id, { wraps }]) => ({ kek_id, wraps }))
      ),
      rewrapBatch: ({ after = "", primary, size }, rewrap) =>
        Effect.sync(() => {
          const rows = Array.from(credentials.values())
            .filter((row) => cursorOf(row) > after && row.sealed.kek_id !== primary)
            .sort((one, other) => (cursorOf(one) < cursorOf(other) ? -1 : 1))
            .slice(0, size)
          const results = rows.map(({ account_id, credential, sealed }) =>
            rewrap({ ...sealed, sealed: sealed.sealed.subarray(0, 2) }, contextOf({ ...credential, account_id }))
          )
          const failed = rows.flatMap((row, index) => {
            const { credential, sealed } = row
            const result = results[index]
            if (result === undefined) return []
            if (Result.isFailure(result)) return [{ id: credential.id, failure: result.failure }]
            credentials.set(credential.id, { ...row, sealed: { ...sealed, ...result.success } })
            return []
          })
          const last = rows.length < size ? undefined : rows.at(-1)
          const next = last === undefined ? undefined : cursorOf(last)
          return { rewrapped: rows.length - failed.length, failed, next }
        })
    })
  )
)

const keyOf = ({ account_id, credential: { id, workspace_id }, key_version }: CredentialRow): KeyReference => ({
  account_id,
  workspace_id,
  credential_id: id,
  key_version
})

const suspectsIn = (rows: ReadonlyArray<CredentialRow>, labels: ReadonlyArray<string> | undefined) =>
  rows
    .filter(
      ({ credential: { label, provider } }) =>
        labels === undefined ||
        labels.includes(label) ||
        inconclusiveLabel.test(label) ||
        multiSecretProviders.includes(provider)
    )
    .map(({ account_id, credential, key_version, sealed }) => ({
      context: { ...credential, account_id },
      sealed,
      label: credential.label,
      key_version
    }))

const leakedKeys = Layer.effect(
  LeakedKeys,
  Effect.map(Memory, ({ credentials, marks }) => ({
    marked: (account_id, labels) =>
      Effect.sync(() =>
        suspectsIn(
          ofAccount(credentials, account_id).filter(
            ({ credential: { id }, key_version }) => marks.get(id) === key_version
          ),
          labels()
        )
      ),
    countCredentials: Effect.sync(() => credentials.size),
    scan: ({ after = "", labels }) =>
      Effect.sync(() => {
        const page = Array.from(credentials.values())
          .filter(({ credential }) => credential.id > after)
          .sort((one, other) => (one.credential.id < other.credential.id ? -1 : 1))
          .slice(0, 3)
        const suspects = suspectsIn(page, labels)
        return { suspects, searched: page.length, next: page.length < 3 ? undefined : page.at(-1)?.credential.id }
      }),
    conclude: ({ keys: found, park }) =>
      Effect.sync(() =>
        found.map(({ credential_id, key_version }) => {
          if (park && credentials.get(credential_id)?.key_version === key_version) marks.set(credential_id, key_version)
          return marks.get(credential_id) === key_version
        })
      ),
    clear: (account_id, id) =>
      Effect.sync(() =>
        Option.map(ownRow(credentials, account_id, id), (row) => {
          if (marks.get(id) === row.key_version) marks.delete(id)
          return keyOf(row)
        })
      )
  }))
)

/** Versions are contents, without what a rewrap changes: they are the same again if a change is taken back. */
const credentialPools = Layer.effect(
  CredentialPools,
  Effect.map(Memory, ({ apiKeys, credentials, marks, parkings, workspaces }) => {
    const liveIn = (account_id: AccountId, workspace_id: WorkspaceId | undefined) =>
      ofAccount(workspaces, account_id).find(
        (one) =>
          one.deleted_at === null && (workspace_id === undefined ? one.is_default : one.workspace_id === workspace_id)
      )
    const parkingsOf = (
      { credential: { id }, key_version }: CredentialRow,
      now: number
    ): ReadonlyArray<StoredParking> => [
      ...(marks.get(id) === key_version
        ? [{ model: "", key_version, epoch: 0, cause: "leaked" as const, strikes: 0, remaining: null }]
        : []),
      ...Array.from(parkings.values())
        .filter((one) => one.credential_id === id && one.key_version === key_version)
        .map(({ cause, credential_id: _, parked_at: _at, until, ...parking }) => ({
          ...parking,
          cause: cause ?? ("succeeded" as const),
          remaining: Number.isFinite(until) ? until - now : null
        }))
    ]
    const membersIn = (account_id: AccountId, workspace_id: WorkspaceId, provider: string) =>
      ofAccount(credentials, account_id).filter(
        ({ credential }) => credential.workspace_id === workspace_id && credential.provider === provider
      )
    const stateOf = (members: ReadonlyArray<CredentialRow>) => ({
      version: members.map(versionOf).join(),
      health: JSON.stringify(members.map((row) => parkingsOf(row, 0))),
      members: members.length,
      bytes: members.reduce((sum, { sealed }) => sum + sealed.sealed.length, 0)
    })
    const poolIn = (account_id: AccountId, workspace_id: WorkspaceId, provider: string, now: number) => {
      const members = membersIn(account_id, workspace_id, provider)
      return {
        ...stateOf(members),
        rows: members.map((row) => ({ ...row, row: `${versionOf(row)} ${row.sealed.kek_id}` })),
        parkings: new Map(
          members
            .map((row) => [row.credential.id, parkingsOf(row, now)] as const)
            .filter(([, { length }]) => length > 0)
        )
      }
    }
    const load: CredentialPools["Service"]["load"] = (
      { account_id, workspace_id },
      provider,
      known,
      admit = () => Effect.void
    ) =>
      Effect.clockWith((clock) => {
        if (liveIn(account_id, workspace_id) === undefined) return Effect.succeedNone
        const pool = poolIn(account_id, workspace_id, provider, monotonicMillis(clock))
        const parkings = Array.from(pool.parkings.values()).flat()
        const lists = pool.rows.flatMap(({ credential }) => listNames.map((list) => credential[list] ?? []))
        const size = {
          parkings: parkings.reduce((sum, { model }) => sum + 200 + model.length, 0),
          elements: known === undefined ? lists.flat().length : 0
        }
        return Effect.as(admit(size), Option.some(pool.version === known ? { ...pool, rows: undefined } : pool))
      })
    const versions: CredentialPools["Service"]["versions"] = ({ account_id, workspace_id: asked }, providers) =>
      Effect.sync(() =>
        Option.map(Option.fromUndefinedOr(liveIn(account_id, asked)), ({ workspace_id }) => ({
          workspace_id,
          pools: providers.map((provider) => stateOf(membersIn(account_id, workspace_id, provider)))
        }))
      )
    return {
      time: Effect.clockWith((clock) => Effect.succeed(clock.currentTimeMillisUnsafe())),
      versions,
      versionsOfKey: ({ api_key_hash, ...asked }, providers) =>
        Effect.suspend(() => {
          const key = apiKeys.get(api_key_hash)
          if (key === undefined || key.revoked_at !== null) return Effect.succeedNone
          const { account_id, role } = key
          return Effect.map(versions({ account_id, ...asked }, providers), (found) =>
            Option.some({ account_id, role, versions: found })
          )
        }),
      load
    }
  })
)

const parkings = Layer.effect(
  Parkings,
  Effect.map(Memory, ({ credentials, marks, parkings }) => ({
    store: (changes) =>
      Effect.clockWith((clock) => {
        for (const { account_id, credential_id, model, remaining, ...change } of changes) {
          const row = credentials.get(credential_id)
          if (row?.account_id !== account_id || row.key_version !== change.key_version) continue
          const now = monotonicMillis(clock)
          for (const [other, { credential_id: of, key_version, parked_at = 0, until }] of parkings) {
            const isOver = now > Math.max(until, parked_at) + sweptAfter
            if (of === credential_id && (isOver || key_version < row.key_version)) parkings.delete(other)
          }
          const until = remaining === null ? Number.NEGATIVE_INFINITY : now + Math.min(remaining, longestCooldown)
          const name = `${credential_id} ${model}`
          const known = parkings.get(name) ?? initialCooldown(0)
          const joined = join(known, { ...change, until })
          if (joined !== known) parkings.set(name, { credential_id, model, parked_at: now, ...joined })
          if ((marks.get(credential_id) ?? row.key_version) < row.key_version) marks.delete(credential_id)
        }
        return Effect.succeed([])
      }),
    find: (account_id, ids) =>
      Effect.clockWith((clock) => {
        const [now, since] = [monotonicMillis(clock), clock.currentTimeMillisUnsafe()]
        const wallOf = (at: number) => since + at - now
        const parkingOf = ({ credential: { id }, key_version }: CredentialRow): ReadonlyArray<Parking> => [
          ...(marks.get(id) === key_version ? [{ model: null, cause: "leaked" as const, since, until: null }] : []),
          ...Array.from(parkings.values())
            .filter((row) => row.credential_id === id && row.key_version === key_version && row.until > now)
            .flatMap(({ cause, model, parked_at = now, until }) =>
              cause === null
                ? []
                : [{ model: model === "" ? null : model, cause, since: wallOf(parked_at), until: wallOf(until) }]
            )
            .sort((one, other) => ((one.model ?? "") < (other.model ?? "") ? -1 : 1))
        ]
        const rows = ids.flatMap((id) => Option.toArray(ownRow(credentials, account_id, id)))
        return Effect.succeed(
          new Map(
            rows.map((row) => [row.credential.id, parkingOf(row)] as const).filter(([, { length }]) => length > 0)
          )
        )
      })
  }))
)

const credentialUse = Layer.effect(
  CredentialUse,
  Effect.map(Memory, ({ credentials, uses }) => ({
    store: (given) =>
      Effect.sync(() => {
        for (const { account_id, credential_id, ...use } of given) {
          if (Option.isNone(ownRow(credentials, account_id, credential_id))) continue
          const known = uses.get(credential_id) ?? neverUsed
          uses.set(credential_id, { account_id, credential_id, ...mergeUses(known, use) })
        }
        return []
      }),
    find: (account_id, ids) =>
      Effect.sync(() => {
        const own = ids.flatMap((id) => Option.toArray(ownRow(uses, account_id, id)))
        return new Map(own.map(({ account_id: _, credential_id, ...use }) => [credential_id, use]))
      })
  }))
)

/** Up to `limit` rows from `first` on, without their account; all from the beginning without `first`. */
const pageFrom = <Row extends Owned>(
  rows: ReadonlyArray<Row>,
  isFirst: (row: Row) => boolean,
  first: string | undefined,
  limit: number
) => {
  const start = first === undefined ? 0 : rows.findIndex(isFirst)
  return start < 0 ? [] : rows.slice(start, start + limit).map(({ account_id: _, ...row }) => row)
}

const accountRepository = Layer.unwrap(
  Effect.map(Memory, ({ accounts, apiKeys, credentials, erased, pools, records, uses, workspaces }) => {
    const addWorkspace = (account_id: AccountId, workspace: Omit<Workspace, "deleted_at">) => {
      if (accounts.has(account_id) && !workspaces.has(workspace.workspace_id)) {
        workspaces.set(workspace.workspace_id, { account_id, ...workspace, deleted_at: null })
      }
      return accounts.has(account_id)
    }
    const addApiKey = (account_id: AccountId, key: NewApiKey) => {
      if (!accounts.has(account_id)) return "no account"
      const { revoked_at, ...stored } = apiKeys.get(key.hash) ?? { account_id, ...key, revoked_at: null }
      apiKeys.set(key.hash, { ...stored, revoked_at })
      return isDeepStrictEqual(stored, { account_id, ...key }) ? "added" : "hash taken"
    }
    return Layer.mock(AccountRepository, {
      hasAccounts: Effect.sync(() => accounts.size > 0),
      exists: (account_id) => Effect.sync(() => accounts.has(account_id)),
      createAccount: ({ account_id, name }, workspace, key) =>
        Effect.sync(() => {
          const { created_at } = workspace
          const before = accounts.get(account_id)
          if (erased.has(account_id)) return "deleted"
          if (before !== undefined && !apiKeys.has(key.hash)) return before.name === name ? "exists" : "differs"
          if (before === undefined) accounts.set(account_id, { account_id, name, created_at })
          addWorkspace(account_id, { ...workspace, is_default: true })
          addApiKey(account_id, key)
          return "created"
        }),
      listAccounts: (after, limit) =>
        Effect.sync(() =>
          Array.from(accounts.values())
            .filter(({ account_id }) => after === undefined || account_id > after)
            .sort((one, other) => (one.account_id < other.account_id ? -1 : 1))
            .slice(0, limit)
        ),
      eraseAccount: (account_id, at, limit) =>
        Effect.sync(() => {
          if (!accounts.has(account_id)) return Option.none()
          const deleteOwn = <Key, Row extends Owned>(rows: Map<Key, Row>, most = Number.POSITIVE_INFINITY) => {
            const own = Array.from(rows).filter(([, row]) => row.account_id === account_id)
            return own.slice(0, most).filter(([key]) => rows.delete(key)).length
          }
          deleteOwn(apiKeys)
          for (const workspace of ofAccount(workspaces, account_id)) {
            workspaces.set(workspace.workspace_id, { ...workspace, deleted_at: workspace.deleted_at ?? at })
          }
          const deleted = deleteOwn(credentials, limit)
          const idempotency_records = deleteOwn(records, limit - deleted)
          const done = deleted + idempotency_records < limit
          for (const { workspace_id } of ofAccount(workspaces, account_id)) {
            for (const name of pools.keys()) if (name.startsWith(workspace_id)) pools.delete(name)
          }
          if (done) {
            deleteOwn(workspaces)
            deleteOwn(uses)
            accounts.delete(account_id)
            erased.add(account_id)
          }
          return Option.some({ credentials: deleted, idempotency_records, done })
        }),
      createWorkspace: (account_id, workspace) =>
        Effect.sync(() => addWorkspace(account_id, { ...workspace, is_default: false })),
      findWorkspace: (workspace_id) =>
        Effect.sync(() =>
          Option.map(Option.fromUndefinedOr(workspaces.get(workspace_id)), ({ account_id }) => ({ account_id }))
        ),
      makeDefault: (account_id, workspace_id) =>
        Effect.sync(() => {
          if (Option.getOrUndefined(ownRow(workspaces, account_id, workspace_id))?.deleted_at !== null) return false
          for (const [id, workspace] of workspaces) {
            if (workspace.account_id === account_id) {
              workspaces.set(id, { ...workspace, is_default: id === workspace_id })
            }
          }
          return true
        }),
      deleteWorkspace: (workspace_id, at, keepIfInUse = false, owner) =>
        Effect.sync(() => {
          const workspace = workspaces.get(workspace_id)
          if (workspace === undefined || workspace.account_id !== (owner ?? workspace.account_id)) return Option.none()
          const within = Array.from(credentials.values()).filter(
            ({ credential }) => credential.workspace_id === workspace_id
          )
          const isKept = keepIfInUse && workspace.is_default && within.length > 0
          const deleted_at = workspace.deleted_at ?? (isKept ? null : at)
          workspaces.set(workspace_id, { ...workspace, deleted_at })
          return Option.some({ credentials: within.length, deleted_at })
        }),
      listWorkspaces: (account_id, first, limit) =>
        Effect.sync(() => {
          const rows = ofAccount(workspaces, account_id).sort(inOrder((row) => row.workspace_id))
          return pageFrom(rows, ({ workspace_id }) => workspace_id === first, first, limit)
        }),
      addApiKey: (account_id, key) => Effect.sync(() => addApiKey(account_id, key)),
      revokeApiKey: (hash, at, owner) =>
        Effect.sync(() => {
          const key = apiKeys.get(hash)
          if (key === undefined || key.account_id !== (owner ?? key.account_id)) return Option.none()
          const revoked_at = key.revoked_at ?? at
          apiKeys.set(hash, { ...key, revoked_at })
          return Option.some(revoked_at)
        }),
      listApiKeys: (account_id, first, limit) =>
        Effect.sync(() => {
          const rows = ofAccount(apiKeys, account_id).sort(inOrder((row) => row.hash))
          return pageFrom(rows, ({ hash }) => hash === first, first, limit)
        }),
      listClientKeys: (account_id, limit) =>
        Effect.sync(() =>
          ofAccount(apiKeys, account_id)
            .filter(({ revoked_at, role }) => role === "ordinary" && revoked_at === null)
            .sort(inOrder((row) => row.hash))
            .slice(0, limit)
            .map(({ hash, name }) => ({ hash, name }))
        )
    })
  })
)

const linkRepository = Layer.unwrap(
  Effect.map(Memory, ({ links }) => {
    /** Changes a link that is open. */
    const changing = <A>({ link_id }: Pick<Link, "link_id">, change: (row: LinkRow) => A) =>
      Effect.clockWith((clock) =>
        Effect.sync(() => {
          const row = links.get(link_id)
          return row !== undefined && stateAt(row, clock.currentTimeMillisUnsafe()) === "open" ? change(row) : undefined
        })
      )
    const recordOf = ({ ended: _, keys, ...link }: LinkRow, state: LinkState) => ({
      ...{ ...link, state, keys: keys ?? null }
    })
    return Layer.mock(LinkRepository, {
      insert: (link, expires_in, hash, keys) =>
        Effect.map(DateTime.now, (created_at) => {
          const expires_at = DateTime.add(created_at, { seconds: expires_in })
          const row = links.get(link.link_id) ?? {
            ...{ ...link, created_at, expires_at, hash, keys },
            ...{ ended: null, stored_label: null }
          }
          links.set(link.link_id, row)
          return Option.some(row.expires_at)
        }),
      find: (hash) =>
        Effect.clockWith((clock) => {
          const row = Array.from(links.values()).find((one) => one.hash === hash)
          const record = row && recordOf(row, stateAt(row, clock.currentTimeMillisUnsafe()))
          return Effect.succeed(Option.fromUndefinedOr(record))
        }),
      revoke: (account_id, link_id) =>
        Effect.as(
          changing({ link_id }, (row) => links.set(link_id, { ...row, ended: "revoked", keys: undefined })),
          links.get(link_id)?.account_id === account_id
        ),
      replaceKeys: (link, keys) =>
        Effect.map(
          changing(link, (row) => {
            links.set(row.link_id, { ...row, keys })
            return row.keys
          }),
          Option.fromUndefinedOr
        )
    })
  })
)

/** Every port that stores something, over one `Memory`, which it provides as well. What only an operator does is missing. */
export const layer = Layer.mergeAll(
  accountRepository,
  apiKeys,
  credentialPools,
  credentialRepository,
  credentialUse,
  kekRegistry,
  leakedKeys,
  linkRepository,
  parkings,
  idempotencyRecords,
  workspaceResolver
).pipe(Layer.provideMerge(Memory.layer))
