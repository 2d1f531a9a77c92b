import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { buildIndexes } from "./buildIndexes.ts"

/**
 * Keys the rows of tenants by account: every primary key and unique constraint of theirs begins with `account_id`, as
 * partitioning by account requires. Ids remain UUIDs; only their uniqueness within an account is enforced.
 *
 * The indexes are built beforehand, while the service runs, so the tables are locked only to exchange them. Foreign
 * keys apply to new rows from then on; 0006 validates them for older ones. Unique indexes on `id` alone, which the
 * `ON CONFLICT (id)` of 1.0.0 needs and partitioning rules out, stay until 0011.
 *
 * An audit entry holds the events of one transaction about one account, whose id it has; entries about no account, and
 * those from before, have none. So an entry belongs to one partition, and the entries of an account are found by a
 * column. The chain of hashes does not cover the column, which repeats what the events say.
 */
const statements = [
  // Shorter than deadlock_timeout: readers that lock tables in another order wait instead of failing.
  `SET LOCAL lock_timeout = '300ms'`,
  // In the order in which a create locks them.
  `LOCK TABLE workspaces, receipts, credentials, audit_entries IN ACCESS EXCLUSIVE MODE`,
  `ALTER TABLE receipts
    DROP CONSTRAINT receipts_credential_id_fkey,
    DROP CONSTRAINT receipts_credential_id_key,
    ADD CONSTRAINT receipts_account_id_credential_id_key UNIQUE USING INDEX receipts_account_credential`,
  `ALTER TABLE credentials
    DROP CONSTRAINT credentials_workspace,
    DROP CONSTRAINT credentials_pkey,
    ADD CONSTRAINT credentials_pkey PRIMARY KEY USING INDEX credentials_account`,
  `DROP INDEX credentials_order`,
  `ALTER INDEX credentials_account_order RENAME TO credentials_order`,
  `ALTER TABLE workspaces
    DROP CONSTRAINT workspaces_account_id_id_key,
    DROP CONSTRAINT workspaces_pkey,
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY USING INDEX workspaces_account`,
  `ALTER TABLE credentials ADD CONSTRAINT credentials_workspace
    FOREIGN KEY (account_id, workspace_id) REFERENCES workspaces (account_id, id) NOT VALID`,
  `ALTER TABLE receipts ADD CONSTRAINT receipts_credential
    FOREIGN KEY (account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE NOT VALID`,
  `ALTER TABLE audit_entries ADD COLUMN account_id uuid`
]

/** `workspaces_id` is for a command that names a workspace alone. */
export const prepare = buildIndexes([
  { name: "credentials_account", unique: true, on: "credentials (account_id, id)" },
  { name: "credentials_id", unique: true, on: "credentials (id)" },
  { name: "credentials_account_order", on: "credentials (account_id, workspace_id, provider, sort_order)" },
  { name: "receipts_account_credential", unique: true, on: "receipts (account_id, credential_id)" },
  { name: "workspaces_account", unique: true, on: "workspaces (account_id, id)" },
  { name: "workspaces_id", on: "workspaces (id)" },
  { name: "workspaces_id_unique", unique: true, on: "workspaces (id)" }
])

export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) yield* sql.unsafe(statement)
})
