import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AccountId, LinkId } from "../../domain/Identifiers.ts"

/** The columns of the key pair of a link: public, and private as it is sealed. */
export const keyColumns = ["public_key", "kek_id", "wrapped_dek", "sealed"] as const

export const noKeys = (sql: SqlClient.SqlClient) => sql.csv(keyColumns.map((column) => sql`${sql(column)} = NULL`))

const named = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  sql`account_id = ${account_id} AND id = ${link_id} AND ended IS NULL AND expires_at > now()`

/** Whether a link is open; it stays so until the transaction ends. */
export const lockOpenLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  Effect.map(sql`SELECT 1 FROM links WHERE ${named(sql, account_id, link_id)} FOR UPDATE`, ({ length }) => length > 0)

/** Ends a link that is for one act. */
export const useLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) => sql`
  UPDATE links SET ended = 'used', ${noKeys(sql)}
  WHERE ${named(sql, account_id, link_id)} AND purpose IN ('connect', 'replace')`

/** Ends a link, and says whether it was open. */
export const revokeLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  Effect.map(
    sql`UPDATE links SET ended = 'revoked', ${noKeys(sql)} WHERE ${named(sql, account_id, link_id)} RETURNING 1`,
    ({ length }) => length > 0
  )
