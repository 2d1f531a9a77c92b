import type { SqlClient, Statement } from "effect/sql"
import type { AccountId, WorkspaceId } from "../../domain/Identifiers.ts"
import { bytesOf } from "./credentialRows.ts"

/** Names a pool: the credentials of a workspace and provider. */
export interface PoolKey {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly provider: string
}

export const poolKey = ["account_id", "workspace_id", "provider"] as const

/** The key's columns of `table`, or the condition that two tables name one pool. */
export const keyColumns = (sql: SqlClient.SqlClient, table: string) =>
  sql.csv(poolKey.map((column) => sql.literal(`${table}.${column}`)))
export const samePool = (sql: SqlClient.SqlClient, one: string, other: string) =>
  sql.and(poolKey.map((column) => sql.literal(`${one}.${column} = ${other}.${column}`)))

/** What a row of credentials, or of what it will be, adds to the `bytes` of its pool. */
export const memberBytes = (sql: SqlClient.SqlClient, row: string) =>
  sql`(${bytesOf(sql, row)} + octet_length(${sql.literal(row)}.sealed))`

/**
 * Adds a part to a statement on a table of tenants: where Citus spreads accounts over nodes, each is confined to the account
 * of the write by a value.
 */
export type Confine = (table: string) => Statement.Fragment

/**
 * The CTE `locked`: the rows of `wanted` whose pools and then credentials are locked, in the order of the pools' keys, so that
 * no two transactions wait for each other; `held` are the bytes of the credential. With `passing`, what another transaction has locked is left out.
 */
export const lockTargets = (
  sql: SqlClient.SqlClient,
  {
    confine,
    passing,
    wanted
  }: { readonly wanted: string; readonly passing: Statement.Fragment; readonly confine: Confine },
  condition: Statement.Fragment = sql`true`
) => sql`
  locked AS (
    SELECT wanted.*, ${memberBytes(sql, "target")} AS held FROM ${sql.literal(wanted)} AS wanted JOIN pools ON ${samePool(sql, "pools", "wanted")}
    JOIN credentials AS target ON target.account_id = wanted.account_id AND target.id = wanted.id
    WHERE ${condition} ${confine("pools")} ${confine("target")}
    ORDER BY ${keyColumns(sql, "pools")} FOR NO KEY UPDATE OF pools, target ${passing}
  )`

/** The CTE `raised`: raises the version of the pools in which `changed` names rows, with the `members` and `bytes` that each adds. */
export const raisePools = (sql: SqlClient.SqlClient, confine: Confine) => sql`
  raised AS (
    UPDATE pools SET version = pools.version + 1, members = pools.members + total.members, bytes = pools.bytes + total.bytes
    FROM (
      SELECT ${keyColumns(sql, "changed")}, sum(changed.members)::integer AS members, sum(changed.bytes) AS bytes
      FROM changed GROUP BY ${keyColumns(sql, "changed")}
    ) AS total WHERE ${samePool(sql, "pools", "total")} ${confine("pools")}
  )`
