import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { countLimit } from "../domain/countLimit.ts"
import type { KekRegistry, NamingCredential, RegisteredKey } from "../port/KekRegistry.ts"
import type { Database } from "./connection/Database.ts"

/** A CTE `named` of the ids of the keys that credentials name: walks the index from one to the next. NULL ends it. */
const namedKeks = (sql: SqlClient.SqlClient) => sql`
  named AS (
    SELECT min(kek_id) AS id FROM credentials
    UNION ALL
    SELECT (SELECT min(kek_id) FROM credentials WHERE kek_id > named.id) FROM named WHERE named.id IS NOT NULL
  )`

/**
 * How many credentials name the key of `named`, as far as `limit`. The range and the order keep to the index; for an
 * equality PostgreSQL might read the whole table, expecting many rows.
 */
const countNaming = (sql: SqlClient.SqlClient, limit: number | undefined) => sql`(
  SELECT count(*)::int FROM (
    SELECT FROM credentials WHERE kek_id BETWEEN named.id AND named.id
    ORDER BY kek_id LIMIT ${sql.literal(limit === undefined ? "ALL" : String(limit))}
  ) AS naming
)`

// Rows as the driver reads them: the database's types and constraints guarantee the form of every field.

interface RegisteredRow {
  readonly kek_id: string
  readonly wraps: number
  readonly registered_at: Date | null
}
interface UsageRow extends RegisteredRow {
  readonly credentials: number
  readonly retired: boolean
}

const registered = ({ kek_id, registered_at, wraps }: RegisteredRow): RegisteredKey => ({
  kek_id,
  wraps,
  ...(registered_at === null ? {} : { registered_at: DateTime.fromDateUnsafe(registered_at) })
})

const capped = (credentials: number) =>
  credentials > countLimit ? { credentials: countLimit, more_credentials: true as const } : { credentials }

/** Reports which keys there are and which credentials name them. */
export const kekUsage = ({
  background,
  reads: { ask, sql }
}: Database["Service"]): Pick<KekRegistry["Service"], "list" | "live" | "missing" | "naming"> => ({
  list: Effect.map(
    ask(
      sql<UsageRow>`
        WITH RECURSIVE ${namedKeks(sql)}
        SELECT coalesce(named.id, keks.id) AS kek_id,
          CASE WHEN named.id IS NULL THEN 0 ELSE ${countNaming(sql, countLimit + 1)} END AS credentials,
          coalesce(wraps, 0)::float8 AS wraps, retired_at IS NOT NULL AS retired, registered_at
        FROM (SELECT id FROM named WHERE id IS NOT NULL) AS named FULL JOIN keks USING (id)
        ORDER BY kek_id`,
      "keks.list"
    ),
    (rows) => rows.map((row) => ({ ...registered(row), ...capped(row.credentials), retired: row.retired }))
  ),
  live: Effect.map(
    ask(
      sql<RegisteredRow>`
        SELECT id AS kek_id, wraps::float8 AS wraps, registered_at FROM keks WHERE retired_at IS NULL`,
      "keks.live"
    ),
    (rows) => rows.map(registered)
  ),
  missing: (kek_ids, limit) =>
    background.probe(
      background.sql<{ kek_id: string; credentials: number }>`
        WITH RECURSIVE ${namedKeks(background.sql)}
        SELECT id AS kek_id, ${countNaming(background.sql, limit)} AS credentials
        FROM named WHERE id IS NOT NULL AND id <> ALL(${kek_ids}::text[])`,
      "keks.missing"
    ),
  naming: (kek_ids, limit) =>
    ask(
      sql<NamingCredential>`
        SELECT kek_id, account_id, workspace_id, id AS credential_id FROM credentials
        WHERE kek_id = ANY(${kek_ids}::text[]) ORDER BY kek_id, id LIMIT ${limit}`,
      "keks.naming"
    )
})
