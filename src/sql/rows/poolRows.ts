import type { SqlClient } from "effect/sql"

/** The columns that name a pool: the credentials of a workspace and provider. */
const poolKey = ["account_id", "workspace_id", "provider"] as const

/** The columns of a pool's key in a table. */
export const keyColumns = (sql: SqlClient.SqlClient, table: string) =>
  sql.csv(poolKey.map((column) => sql.literal(`${table}.${column}`)))

/** The condition that rows of two tables have the same pool. */
export const samePool = (sql: SqlClient.SqlClient, one: string, other: string) =>
  sql.and(poolKey.map((column) => sql.literal(`${one}.${column} = ${other}.${column}`)))
