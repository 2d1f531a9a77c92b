import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { AccountId, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import { PoolFull, type PoolLimits } from "../../port/CredentialRepository.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { makeLookUp } from "../connection/statements.ts"
import { listBytes } from "./credentialRows.ts"

/** Names a pool: the credentials of a workspace and provider. */
export interface PoolKey {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly provider: string
}

/** The columns of a `PoolKey`. */
export const poolKey = ["account_id", "workspace_id", "provider"] as const

/** The columns of a pool's key in a table. */
export const keyColumns = (sql: SqlClient.SqlClient, table: string) =>
  sql.csv(poolKey.map((column) => sql.literal(`${table}.${column}`)))

/** The condition that rows of two tables have the same pool. */
export const samePool = (sql: SqlClient.SqlClient, one: string, other: string) =>
  sql.and(poolKey.map((column) => sql.literal(`${one}.${column} = ${other}.${column}`)))

/** SQL for how much a row of a table with credentials, stored or new, adds to the `bytes` of its pool. */
export const memberBytes = (sql: SqlClient.SqlClient, table: string) =>
  sql`(${listBytes(sql, table)} + octet_length(${sql.literal(table)}.sealed))`

/**
 * With Citus, a condition that names the account of a table's rows as a value, so that one node runs the statement;
 * otherwise empty. Begins with AND.
 */
export type AndAccount = (table: string) => Statement.Fragment

/**
 * The CTE `locked`: the rows of `wanted` that meet `condition`, with the `member_bytes` of each credential. In the
 * condition, `target` is the credential of a row, and `pools` its pool. Locks each pool before its credentials, pools in
 * the order of their keys, so that no two transactions deadlock. `skipLocked` is SKIP LOCKED or empty.
 */
export const lockTargets = (
  sql: SqlClient.SqlClient,
  wanted: string,
  condition: Statement.Fragment,
  skipLocked: Statement.Fragment,
  andAccount: AndAccount
) => sql`
  locked AS (
    SELECT wanted.*, ${memberBytes(sql, "target")} AS member_bytes FROM ${sql.literal(wanted)} AS wanted
    JOIN credentials AS target ON target.account_id = wanted.account_id AND target.id = wanted.id
    JOIN pools ON ${samePool(sql, "pools", "target")}
    WHERE ${condition} ${andAccount("pools")} ${andAccount("target")}
    ORDER BY ${keyColumns(sql, "pools")} FOR NO KEY UPDATE OF pools, target ${skipLocked}
  )`

/**
 * The CTE `raised`: raises the version of each pool in `changed`, and adds to it the `members` and `bytes` of its rows in
 * `changed`, which are negative for deletions. PostgreSQL computes and checks the new row twice: from the snapshot, then
 * from the locked row. `greatest` is for the first check: if a deleted member has grown since the snapshot, its bytes may
 * exceed those of the pool in the snapshot.
 */
export const raisePools = (sql: SqlClient.SqlClient, andAccount: AndAccount) => sql`
  raised AS (
    UPDATE pools SET version = pools.version + 1, members = pools.members + total.members,
      bytes = greatest(pools.bytes + total.bytes, 0)
    FROM (
      SELECT ${keyColumns(sql, "changed")}, sum(changed.members)::integer AS members, sum(changed.bytes) AS bytes
      FROM changed GROUP BY ${keyColumns(sql, "changed")}
    ) AS total WHERE ${samePool(sql, "pools", "total")} ${andAccount("pools")}
  )`

/** How full a pool is, and how much of it is one credential. */
interface PoolUsage {
  readonly workspace_deleted: boolean
  readonly members: number
  readonly bytes: number
  /** The bytes of the credential; null if it does not exist. */
  readonly member_bytes: number | null
  /** The part of `member_bytes` that is the sealed key. */
  readonly sealed_bytes: number | null
}

/** Makes a look-up of how full the pool of a credential is; none for an unknown workspace. */
export const makeFindUsage = (pool: ConnectionPool) => {
  const { sql } = pool
  return makeLookUp<PoolKey & { readonly id: CredentialId }, PoolUsage, PoolUsage>(pool, {
    operation: "pools.room",
    by: { account_id: "uuid", workspace_id: "uuid", provider: "text", id: "uuid" },
    select: ({ account_id, id, provider, workspace_id }) => sql<PoolUsage>`
      SELECT deleted_at IS NOT NULL AS workspace_deleted, coalesce(pools.members, 0) AS members,
        coalesce(pools.bytes, 0)::float8 AS bytes, ${memberBytes(sql, "credentials")} AS member_bytes,
        octet_length(credentials.sealed) AS sealed_bytes
      FROM workspaces LEFT JOIN pools ON pools.account_id = workspaces.account_id
      AND pools.workspace_id = workspaces.id AND pools.provider = ${provider}
      LEFT JOIN credentials ON credentials.account_id = workspaces.account_id AND credentials.id = ${id}
      WHERE workspaces.account_id = ${account_id} AND workspaces.id = ${workspace_id}`,
    read: (usage) => usage
  })
}

/** Fails with `PoolFull` if the pool has no room for a member of `size` bytes. One that does not grow always fits. */
export const checkByteLimit = ({ bytes, member_bytes }: PoolUsage, limits: PoolLimits["Service"], size: number) => {
  const growth = size - (member_bytes ?? 0)
  const isFitting = growth <= 0 || bytes + growth <= limits.bytes
  return isFitting ? Effect.void : Effect.fail(new PoolFull({ unit: "bytes", limit: limits.bytes }))
}
