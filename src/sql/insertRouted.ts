import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { IdempotencyRecord } from "../port/IdempotencyRecords.ts"
import { type Creation, insertValues, newColumns, targetAt, type Assigned } from "./credentialRows.ts"

/**
 * Inserts a row, and its idempotency record if it has one, where Citus spreads accounts over nodes. Every statement names
 * the account as a value, so one node runs it; in a single statement, Citus would send what a CTE returns to every node,
 * and a node that is down would fail the creates of all accounts.
 */
export const insertRouted = (sql: SqlClient.SqlClient, creation: Creation, limit: number, record?: IdempotencyRecord) =>
  Effect.gen(function* () {
    const { account_id, id } = creation.row
    const values = insertValues(creation)
    const [target] = yield* sql<{ readonly next_order: number }>`${targetAt(sql, creation.row, limit)}`
    if (target === undefined) return []
    if (record !== undefined) {
      const recorded = yield* sql`
        INSERT INTO receipts (account_id, key_hash, credential_id, fingerprint, created_at)
        VALUES (${account_id}, ${record.key_hash}, ${id}, ${record.fingerprint}, now())
        ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING 1`
      if (recorded.length === 0) return []
    }
    const inserted = yield* sql<Assigned>`
      INSERT INTO credentials (${sql.csv(newColumns)}, sort_order, created_at)
      VALUES (${sql.csv(newColumns.map((column) => sql`${values[column]}`))}, ${target.next_order},
        date_trunc('milliseconds', now()))
      ${record === undefined ? sql`ON CONFLICT (account_id, id) DO NOTHING` : sql``}
      RETURNING account_id, id, sort_order, created_at`
    if (inserted.length > 0) {
      yield* sql`INSERT INTO audit_entries (account_id, events) VALUES (${account_id}, ${values.entry}::json)`
    }
    return inserted
  }).pipe(sql.withTransaction)
