import { Effect, Option } from "effect"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { Credential } from "../../domain/Credential.ts"
import { ChangeableField } from "../../domain/CredentialChanges.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import type { CredentialOrder, CredentialUpdate, PoolFull, PoolLimits } from "../../port/CredentialRepository.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import {
  listBytes,
  columnTypes,
  type CredentialKey,
  memberBytesOf,
  type Recorded,
  recordedOf
} from "../rows/credentialRows.ts"
import { makeWrite } from "./makeWrite.ts"
import { keyColumns, lockTargets, makeFindUsage, memberBytes, raisePools, checkByteLimit } from "../rows/poolRows.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import { makeLookUp } from "../connection/statements.ts"
import { actingPrincipal } from "../../domain/Principal.ts"
import { LinkClosed } from "../../port/Links.ts"
import { record } from "../audit/auditing.ts"
import { linkClosed, whileLinkOpen } from "../rows/principalRows.ts"

/** The columns that an update may change, except the sealed key and the versions. */
const changeableColumns = ["label", ...ChangeableField.literals.filter((field) => field !== "key")] as const
const sealedKeyColumns = ["kek_id", "wrapped_dek", "sealed"] as const

/** The new values of a credential; the columns of the sealed key are null if the key stays. */
type Values = Credential &
  Pick<CredentialUpdate, "revision" | "key_version" | "fields"> & { readonly account_id: AccountId } & {
    readonly [K in keyof SealedKey]: SealedKey[K] | null
  }

const actsOf = (values: Values): ReadonlyArray<AuditAct> => {
  const { fields, key_version, revision } = values
  const recorded = recordedOf(values)
  return [
    { action: "credential.update", ...recorded, revision: revision + 1, fields },
    ...(fields.includes("key") ? [{ action: "credential.rotate", ...recorded, key_version } as const] : [])
  ]
}

/** Updates a credential if it still has the revision that was read, or returns false. Fails if its pool has no room. */
export const updateCredential = (pool: ConnectionPool, limits: PoolLimits["Service"]) => {
  const { sql } = pool
  const findUsage = makeFindUsage(pool)
  const assignments = sql.csv([
    ...changeableColumns.map((column) => sql`${sql(column)} = input.${sql(column)}`),
    ...sealedKeyColumns.map(
      (column) => sql`${sql(column)} = coalesce(input.${sql(column)}, credentials.${sql(column)})`
    ),
    sql`key_version = input.key_version, revision = credentials.revision + 1`
  ])
  /** The condition that a row is the credential of `input`, in the revision that was read. */
  const isReadRevision = (table: string) =>
    sql.literal(
      `${table}.account_id = input.account_id AND ${table}.id = input.id AND ${table}.revision = input.revision`
    )
  /** How many bytes an update adds to its pool. */
  const growth = sql`
    ${listBytes(sql, "input")} + octet_length(coalesce(input.sealed, before.sealed)) - ${memberBytes(sql, "before")}`
  /**
   * A credential that does not grow fits even in a pool beyond its limit, which may have been lowered. `pool_growth` is
   * what all growing credentials of the batch add to the pool.
   */
  const isPossible = sql`
    target.revision = wanted.revision
    AND (growth <= 0 OR pools.bytes + pool_growth <= ${sql.literal(String(limits.bytes))})`

  const write = makeWrite<Values, CredentialKey, PoolFull>(pool, {
    operation: "credentials.update",
    columns: { ...columnTypes, revision: "integer", key_version: "integer" },
    actsOf,
    sizeOf: memberBytesOf,
    change: (skipLocked, andAccount) => sql`
      sized AS (
        SELECT input.*, ${growth} AS growth,
          sum(greatest(${growth}, 0)) OVER (PARTITION BY ${keyColumns(sql, "input")}) AS pool_growth
        FROM input JOIN credentials AS before ON ${isReadRevision("before")} ${andAccount("before")}
      ), ${lockTargets(sql, "sized", isPossible, skipLocked, andAccount)}, changed AS (
        UPDATE credentials SET ${assignments} FROM locked AS input WHERE ${isReadRevision("credentials")} ${andAccount("credentials")}
        RETURNING ${keyColumns(sql, "credentials")}, credentials.id, 0 AS members, input.growth AS bytes
      ), ${raisePools(sql, andAccount)}`,
    returning: ["account_id", "id"],
    recall: ({ account_id, id }) => Effect.succeed([{ account_id, id }]),
    refusal: (row) =>
      Effect.flatMap(findUsage(row), (usageOfPool) => {
        const usage = Option.getOrUndefined(usageOfPool)
        // Nothing to refuse if the credential was deleted.
        return usage?.sealed_bytes == null
          ? Effect.void
          : checkByteLimit(usage, limits, memberBytesOf(row) + (row.sealed === null ? usage.sealed_bytes : 0))
      })
  })

  return (account_id: AccountId, { credential, fields, key_version, revision, sealed }: CredentialUpdate) => {
    const key = sealed ?? { kek_id: null, wrapped_dek: null, sealed: null }
    return Effect.map(write({ ...credential, ...key, account_id, fields, key_version, revision }), Option.isSome)
  }
}

/** Deletes a credential. Returns false if there is none. */
export const deleteCredential = (pool: ConnectionPool) => {
  const { sql } = pool
  const { account_id, id, label, provider, workspace_id } = columnTypes
  const find = makeLookUp<CredentialKey, Recorded, Recorded>(pool, {
    operation: "credentials.locate",
    by: { account_id: "uuid", id: "uuid" },
    select: ({ account_id, id }) => sql<Recorded>`
      SELECT account_id, workspace_id, provider, label, id FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
    read: ({ account_id, id, label, provider, workspace_id }) => ({ account_id, id, label, provider, workspace_id })
  })
  const write = makeWrite<Recorded, CredentialKey>(pool, {
    operation: "credentials.delete",
    columns: { account_id, id, label, provider, workspace_id },
    actsOf: (row) => [{ action: "credential.delete", ...recordedOf(row) }],
    change: (skipLocked, andAccount) => sql`
      ${lockTargets(sql, "input", sql`target.label = wanted.label`, skipLocked, andAccount)}, changed AS (
        DELETE FROM credentials USING locked AS input
        WHERE credentials.account_id = input.account_id AND credentials.id = input.id ${andAccount("credentials")}
        RETURNING ${keyColumns(sql, "credentials")}, credentials.id, -1 AS members, -input.member_bytes AS bytes
      ), ${raisePools(sql, andAccount)}`,
    returning: ["account_id", "id"],
    recall: ({ account_id, id }) => Effect.succeed([{ account_id, id }])
  })
  /** Starts again if the label, which the audit log records, has changed since `find`. */
  const remove = (account_id: AccountId, id: CredentialId): Answer<boolean> =>
    Effect.flatMap(
      find({ account_id, id }),
      Option.match({
        onNone: () => Effect.succeed(false),
        onSome: (row) =>
          Effect.flatMap(write(row), (deleted) =>
            Option.isSome(deleted) ? Effect.succeed(true) : remove(account_id, id)
          )
      })
    )
  return remove
}

interface Ordered {
  readonly id: CredentialId
  readonly sort_order: number
  readonly created_at: Date
}

/** Compares `sort_order` and time of creation. Rows that were sorted by id are then in the order of routing. */
const byOrder = (one: Ordered, other: Ordered) =>
  one.sort_order - other.sort_order || one.created_at.getTime() - other.created_at.getTime()

/**
 * Stores the order of all credentials of a workspace and provider in one transaction. Stores nothing if that is the
 * order already, or if ids are missing or foreign, which it returns. A credential created later comes last.
 */
export const reorderCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { ids, provider, workspace_id }: CredentialOrder) => {
    const reorder = Effect.gen(function* () {
      const isInPool = sql`account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider}`
      yield* sql`SELECT FROM pools WHERE ${isInPool} FOR NO KEY UPDATE`
      const rows = yield* sql<Ordered>`
        SELECT id, sort_order, created_at FROM credentials
        WHERE ${isInPool} ORDER BY id FOR UPDATE`
      const stored = Array.from(rows)
        .sort(byOrder)
        .map(({ id }) => id)
      const requested = new Set(ids)
      const existing = new Set(stored)
      const missing = stored.filter((id) => !requested.has(id))
      const foreign = ids.filter((id) => !existing.has(id))
      if (missing.length > 0 || foreign.length > 0) return Option.some({ missing, foreign })
      if (stored.every((id, index) => id === ids[index])) return Option.none()
      yield* sql`
        UPDATE credentials SET sort_order = place - 1
        FROM unnest(${ids}::uuid[]) WITH ORDINALITY AS wanted (wanted_id, place)
        WHERE account_id = ${account_id} AND id = wanted_id`
      yield* sql`UPDATE pools SET version = version + 1 WHERE ${isInPool}`
      yield* record(sql, [
        { action: "credential.reorder", account_id, workspace_id, provider, credential_ids: [...ids] }
      ])
      return Option.none()
    })
    return Effect.flatMap(actingPrincipal, (principal) => {
      const written = whileLinkOpen(sql, principal, account_id, sql.withTransaction(reorder), () => undefined)
      return Effect.flatMap(ask(written, "credentials.reorder"), (result) =>
        result === linkClosed ? Effect.die(new LinkClosed()) : Effect.succeed(result)
      )
    })
  }
