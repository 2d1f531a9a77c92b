import type { SqlClient } from "effect/sql"

/** A CTE `named` of the ids of the keys that credentials name: walks the index from one to the next. NULL ends it. */
export const namedKeks = (sql: SqlClient.SqlClient) => sql`
  named AS (
    SELECT min(kek_id) AS id FROM credentials
    UNION ALL
    SELECT (SELECT min(kek_id) FROM credentials WHERE kek_id > named.id) FROM named WHERE named.id IS NOT NULL
  )`

/**
 * How many credentials name the key of `named`, as far as `limit`. The range and the order keep to the index; for an
 * equality PostgreSQL might read the whole table, expecting many rows.
 */
export const countNaming = (sql: SqlClient.SqlClient, limit: number | undefined) => sql`(
  SELECT count(*)::int FROM (
    SELECT FROM credentials WHERE kek_id BETWEEN named.id AND named.id
    ORDER BY kek_id LIMIT ${sql.literal(limit === undefined ? "ALL" : String(limit))}
  ) AS naming
)`
