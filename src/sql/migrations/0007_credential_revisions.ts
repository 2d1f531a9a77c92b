import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { buildIndexes } from "./buildIndexes.ts"

/**
 * Columns with a constant default are added without a scan, which a check on them would need. A receipt outlives its
 * credential, so a create that is repeated after a deletion is recognised.
 */
const statements = [
  // Shorter than deadlock_timeout: readers that lock tables in another order wait instead of failing.
  `SET LOCAL lock_timeout = '300ms'`,
  // In the order in which a create locks them.
  `LOCK TABLE receipts, credentials IN ACCESS EXCLUSIVE MODE`,
  `ALTER TABLE receipts DROP CONSTRAINT receipts_credential`,
  `ALTER TABLE credentials
    ADD COLUMN revision integer NOT NULL DEFAULT 1,
    ADD COLUMN key_version integer NOT NULL DEFAULT 1`
]

/** Holds what a list counts and skips. */
export const prepare = buildIndexes([
  { name: "credentials_list", on: "credentials (account_id, workspace_id, created_at, id) INCLUDE (provider)" }
])

export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) yield* sql.unsafe(statement)
})
