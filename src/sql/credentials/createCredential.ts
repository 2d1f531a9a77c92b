import { Effect, Option } from "effect"
import type { Credential } from "../../domain/Credential.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import { type PoolLimits, PoolFull, type UnstoredCredential, WorkspaceGone } from "../../port/CredentialRepository.ts"
import { type Answer, DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { IdempotencyRecord } from "../../port/IdempotencyRecords.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import {
  columnTypes,
  credentialOf,
  memberBytesOf,
  newColumns,
  type NewRow,
  recordedOf
} from "../rows/credentialRows.ts"
import { makeWrite } from "./makeWrite.ts"
import { keyColumns, makeFindUsage, memberBytes, poolKey, checkByteLimit, samePool } from "../rows/poolRows.ts"

/** A new row with its idempotency record, whose values are null if there is none. */
type Creation = NewRow & { readonly [K in keyof IdempotencyRecord]: Uint8Array | null }

/** The primary key of a new row and the columns that the database assigns. `created_at` is in whole milliseconds. */
interface Assigned {
  readonly account_id: AccountId
  readonly id: CredentialId
  readonly sort_order: number
  readonly created_at: Date
}

const assigned = ["account_id", "id", "sort_order", "created_at"] as const
const recordColumns = ["account_id", "key_hash", "credential_id", "fingerprint", "created_at"]

/**
 * Makes the write that creates a credential, with an idempotency record if `withRecord`. The write to the pool's row
 * checks the limits, and assigns the position after all others. A lock prevents the deletion of the workspace until the
 * transaction ends.
 */
const makeInsert = (pool: ConnectionPool, limits: PoolLimits["Service"], withRecord: boolean) => {
  const { sql } = pool
  const findUsage = makeFindUsage(pool)
  const [maxMembers, maxBytes] = [sql.literal(String(limits.credentials)), sql.literal(String(limits.bytes))]
  const now = sql`date_trunc('milliseconds', now())`
  /** Adds to the pool if it exists already, and only if it has room. */
  const growIfRoom = sql`
    ON CONFLICT (${sql.csv(poolKey)}) DO UPDATE SET version = pool.version + 1, members = pool.members + excluded.members,
      next_order = pool.next_order + excluded.members, bytes = pool.bytes + excluded.bytes
    WHERE pool.members + excluded.members <= ${maxMembers} AND pool.bytes + excluded.bytes <= ${maxBytes}`
  const returningOrder = sql`RETURNING ${sql.csv(poolKey)}, next_order`
  const insertPools = sql`INSERT INTO pools AS pool (${sql.csv(poolKey)}, version, members, next_order, bytes)`
  const insertCredentials = sql`INSERT INTO credentials (${sql.csv(newColumns)}, sort_order, created_at)`
  const insertRecords = sql`INSERT INTO idempotency_records (${sql.csv(recordColumns)})`
  /** The members and bytes that the rows of a table add to each pool. */
  const addedBy = (table: string) => sql`
    SELECT ${keyColumns(sql, table)}, count(*)::integer AS members, sum(${memberBytes(sql, table)}) AS bytes
    FROM ${sql.literal(table)} GROUP BY ${keyColumns(sql, table)}`
  const insertPoolsFor = (table: string) => sql`
    ${insertPools} SELECT ${keyColumns(sql, "wanted")}, 1, wanted.members, wanted.members, wanted.bytes
    FROM (${addedBy(table)}) AS wanted`
  /**
   * New members get consecutive positions in the order of `n`, the number of the input row; the last gets the one just
   * before the `next_order` of its pool. A member whose pool is not in `reserved` gets none.
   */
  const insertCredentialsFrom = (table: string) => sql`
    ${insertCredentials} SELECT ${sql.csv(newColumns.map((column) => sql.literal(`${table}.${column}`)))},
      next_order - row_number() OVER (PARTITION BY ${keyColumns(sql, table)} ORDER BY n DESC), ${now}
    FROM ${sql.literal(table)} LEFT JOIN reserved ON ${samePool(sql, table, "reserved")}`
  /** The condition that a row has a workspace that is not deleted. */
  const isInWorkspace = (table: string) =>
    sql.literal(
      `workspaces.account_id = ${table}.account_id AND workspaces.id = ${table}.workspace_id AND deleted_at IS NULL`
    )
  /** `reserved` has the pools with room for all their new members. Credentials of other pools are not inserted. */
  const change = sql`
    reserved AS (
      ${insertPoolsFor("input")} JOIN workspaces ON ${isInWorkspace("wanted")}
      WHERE wanted.members <= ${maxMembers} AND wanted.bytes <= ${maxBytes}
      ORDER BY ${keyColumns(sql, "wanted")} FOR SHARE OF workspaces ${growIfRoom} ${returningOrder}
    ), changed AS (${insertCredentialsFrom("input")} WHERE next_order IS NOT NULL RETURNING ${sql.csv(assigned)})`
  /**
   * Locks pools in the order of their keys before it inserts idempotency records, so that a pool with room still has
   * room afterwards. A pool that does not exist cannot be locked. If another transaction inserts it meanwhile, the new
   * members have no position and the statement fails: waiting for the pool's row with uncommitted idempotency records
   * could deadlock. `taken` has the members whose idempotency key another request has stored.
   */
  const changeWithRecords = sql`
    in_workspace AS (
      SELECT input.* FROM input JOIN workspaces ON ${isInWorkspace("input")}
      ORDER BY ${keyColumns(sql, "input")} FOR SHARE OF workspaces
    ), locked_pools AS (
      SELECT pools.* FROM pools JOIN (${addedBy("in_workspace")}) AS wanted ON ${samePool(sql, "pools", "wanted")}
      ORDER BY ${keyColumns(sql, "pools")} FOR NO KEY UPDATE OF pools
    ), fitting AS (
      SELECT in_workspace.* FROM in_workspace
      JOIN (${addedBy("in_workspace")}) AS wanted ON ${samePool(sql, "in_workspace", "wanted")}
      LEFT JOIN locked_pools ON ${samePool(sql, "in_workspace", "locked_pools")}
      WHERE coalesce(locked_pools.members, 0) + wanted.members <= ${maxMembers}
      AND coalesce(locked_pools.bytes, 0) + wanted.bytes <= ${maxBytes}
    ), stored_records AS (
      ${insertRecords} SELECT account_id, key_hash, id, fingerprint, now() FROM fitting ORDER BY account_id, key_hash
      ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING account_id, credential_id AS id
    ), claimed AS (SELECT fitting.* FROM fitting JOIN stored_records USING (account_id, id)), taken AS (
      SELECT account_id, id FROM fitting EXCEPT SELECT account_id, id FROM stored_records
    ), grown_pools AS (
      ${insertPoolsFor("claimed")} JOIN locked_pools ON ${samePool(sql, "wanted", "locked_pools")}
      ORDER BY ${keyColumns(sql, "wanted")} ${growIfRoom} ${returningOrder}
    ), new_pools AS (
      ${insertPoolsFor("claimed")} LEFT JOIN locked_pools ON ${samePool(sql, "wanted", "locked_pools")}
      WHERE locked_pools.account_id IS NULL
      ORDER BY ${keyColumns(sql, "wanted")} ON CONFLICT DO NOTHING ${returningOrder}
    ), reserved AS (SELECT * FROM grown_pools UNION ALL SELECT * FROM new_pools),
    changed AS (${insertCredentialsFrom("claimed")} RETURNING ${sql.csv(assigned)})`

  return makeWrite<Creation, Assigned, WorkspaceGone | PoolFull>(pool, {
    operation: withRecord ? "credentials.insert_once" : "credentials.insert",
    columns: { ...columnTypes, key_hash: "bytea", fingerprint: "bytea" },
    actsOf: (row) => [{ action: "credential.create", ...recordedOf(row) }],
    operationOf: ({ id }) => id,
    ...(withRecord
      ? { keyOf: ({ account_id, key_hash }) => `${account_id} ${Buffer.from(key_hash ?? []).toString("hex")}` }
      : {}),
    sizeOf: memberBytesOf,
    change: () => (withRecord ? changeWithRecords : change),
    ...(withRecord ? { listsTaken: true } : {}),
    returning: assigned,
    /** Several statements: in one, Citus would send the result of a CTE to every node, one of which may be down. */
    changeDistributed: Effect.fnUntraced(function* (row) {
      const { account_id, provider, workspace_id } = row
      const workspaces = yield* sql`
        SELECT id FROM workspaces WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL FOR SHARE`
      if (workspaces.length === 0) return []
      const bytes = memberBytesOf(row)
      if (bytes > limits.bytes) return []
      const [reserved] = yield* sql<{ next_order: number }>`
        ${insertPools} VALUES (${account_id}, ${workspace_id}, ${provider}, 1, 1, 1, ${bytes}) ${growIfRoom}
        RETURNING next_order`
      if (reserved === undefined) return []
      if (row.key_hash !== null) {
        yield* sql`${insertRecords} VALUES (${account_id}, ${row.key_hash}, ${row.id}, ${row.fingerprint}, now())`
      }
      return yield* sql<Assigned>`
        ${insertCredentials} VALUES (${sql.csv(newColumns.map((column) => sql`${row[column]}`))}, ${reserved.next_order - 1}, ${now})
        RETURNING ${sql.csv(assigned)}`
    }, sql.withTransaction),
    recall: ({ account_id, id, sealed }) => sql<Assigned>`
      SELECT ${sql.csv(assigned)} FROM credentials
      WHERE account_id = ${account_id} AND id = ${id} AND sealed = ${sealed}`,
    refusal: (row) =>
      Effect.flatMap(findUsage(row), (usageOfPool): Effect.Effect<void, WorkspaceGone | PoolFull> => {
        const usage = Option.getOrUndefined(usageOfPool)
        if (usage === undefined || usage.workspace_deleted) return Effect.fail(new WorkspaceGone())
        if (usage.members < limits.credentials) return checkByteLimit(usage, limits, memberBytesOf(row))
        return Effect.fail(new PoolFull({ unit: "credentials", limit: limits.credentials }))
      }),
    untilRefused: true
  })
}

/** The defect of a new credential whose id another credential has. */
const idTaken = new DatabaseFailure({ kind: "IdTaken", sqlstate: undefined, constraint: "credentials_pkey" })

/** Creates a credential. Returns none if another request has stored an idempotency record with the same `key_hash`. */
export const createCredential = (pool: ConnectionPool, limits: PoolLimits["Service"]) => {
  const insert = makeInsert(pool, limits, false)
  const insertOnce = makeInsert(pool, limits, true)
  return (
    account_id: AccountId,
    credential: UnstoredCredential,
    sealed: SealedKey,
    record?: IdempotencyRecord
  ): Answer<Option.Option<Credential>, WorkspaceGone | PoolFull> => {
    const row = { account_id, ...credential, ...sealed }
    const inserted =
      record === undefined ? insert({ ...row, key_hash: null, fingerprint: null }) : insertOnce({ ...row, ...record })
    return Effect.flatMap(inserted, (stored) => {
      if (Option.isNone(stored)) return record === undefined ? Effect.die(idTaken) : Effect.succeedNone
      return Effect.succeedSome(credentialOf({ ...credential, ...stored.value }))
    })
  }
}
