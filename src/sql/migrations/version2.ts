import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { buildIndexes, running, type Stage } from "./Stage.ts"

/**
 * Keys the rows of tenants by account: every primary key and unique constraint of theirs begins with `account_id`, as
 * partitioning by account requires. Ids remain UUIDs; only their uniqueness within an account is enforced.
 *
 * The indexes are built beforehand, while the service runs, so the tables are locked only to exchange them. The foreign key
 * applies to new rows from then on; the next stage validates it for older ones. Unique indexes on `id` alone, which the
 * `ON CONFLICT (id)` of 1.0.0 needs and partitioning rules out, stay until the last migration.
 *
 * An audit entry holds the events of one transaction about one account, whose id it has; entries about no account, and
 * those from before, have none. So an entry belongs to one partition, and the entries of an account are found by a
 * column. The chain of hashes does not cover the column, which repeats what the events say.
 *
 * A receipt outlives its credential, so a create that is repeated after a deletion is recognised. Columns with a constant
 * default are added without a scan, which a check on them would need.
 */
const keyByAccount = running([
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
    ADD CONSTRAINT credentials_pkey PRIMARY KEY USING INDEX credentials_account,
    ADD COLUMN revision integer NOT NULL DEFAULT 1,
    ADD COLUMN key_version integer NOT NULL DEFAULT 1`,
  `DROP INDEX credentials_order`,
  `ALTER INDEX credentials_account_order RENAME TO credentials_order`,
  `ALTER TABLE workspaces
    DROP CONSTRAINT workspaces_account_id_id_key,
    DROP CONSTRAINT workspaces_pkey,
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY USING INDEX workspaces_account`,
  `ALTER TABLE credentials ADD CONSTRAINT credentials_workspace
    FOREIGN KEY (account_id, workspace_id) REFERENCES workspaces (account_id, id) NOT VALID`,
  `ALTER TABLE audit_entries ADD COLUMN account_id uuid`
])

/** `credentials_list` holds what a list counts and skips; `workspaces_id` is for a command that names a workspace alone. */
const buildKeys = buildIndexes([
  { name: "credentials_account", unique: true, on: "credentials (account_id, id)" },
  { name: "credentials_id", unique: true, on: "credentials (id)" },
  { name: "credentials_account_order", on: "credentials (account_id, workspace_id, provider, sort_order)" },
  { name: "credentials_list", on: "credentials (account_id, workspace_id, created_at, id) INCLUDE (provider)" },
  { name: "receipts_account_credential", unique: true, on: "receipts (account_id, credential_id)" },
  { name: "workspaces_account", unique: true, on: "workspaces (account_id, id)" },
  { name: "workspaces_id", on: "workspaces (id)" },
  { name: "workspaces_id_unique", unique: true, on: "workspaces (id)" }
])

/**
 * `credential_parkings` holds the keys that no router is offered: of the model, or of every model if that is ''. A parking
 * of another `key_version` than the credential's counts for nothing, so replacing a key ends it without a write. Without
 * `until` it has no end. `epoch` counts the successes that ended pauses, so that a late refusal from before such a success
 * changes nothing.
 *
 * `credential_use` holds when routers last used a credential, which decides nothing.
 */
const createRouting = running([
  `CREATE TABLE credential_parkings (
    account_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    model text NOT NULL,
    key_version integer NOT NULL CHECK (key_version > 0),
    cause text NOT NULL CHECK (cause ~ '^[a-z_]{1,32}$'),
    strikes integer NOT NULL CHECK (strikes >= 0),
    until timestamptz(3),
    parked_at timestamptz(3) NOT NULL,
    epoch integer NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    PRIMARY KEY (account_id, credential_id, model),
    CONSTRAINT credential_parkings_credential
      FOREIGN KEY (account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE,
    CONSTRAINT credential_parkings_leaked CHECK (cause <> 'leaked' OR (model = '' AND until IS NULL))
  )`,
  `CREATE TABLE credential_use (
    account_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    last_leased_at timestamptz(3),
    last_succeeded_at timestamptz(3),
    last_failed_at timestamptz(3),
    last_failure text CHECK (last_failure ~ '^[a-z_]{1,32}$'),
    PRIMARY KEY (account_id, credential_id),
    CONSTRAINT credential_use_credential
      FOREIGN KEY (account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE,
    CONSTRAINT credential_use_failed CHECK ((last_failed_at IS NULL) = (last_failure IS NULL))
  )`
])

/** Validates the foreign key of 0005 for older rows, which blocks no reads or writes. */
const validateForeignKey = (sql: SqlClient.SqlClient) =>
  sql`ALTER TABLE credentials VALIDATE CONSTRAINT credentials_workspace`.pipe(Effect.asVoid)

/** When a key was registered is unknown for the rows that exist. The default serves 1.0.0, which inserts no time. */
const kekRegistration = running([
  `ALTER TABLE keks ADD COLUMN registered_at timestamptz(3)`,
  `ALTER TABLE keks ALTER COLUMN registered_at SET DEFAULT now()`
])

/** Drops the unique indexes that 0005 kept for instances of 1.0.0: partitioning by account rules them out. */
const dropKeysById = running([`DROP INDEX IF EXISTS credentials_id, workspaces_id_unique`])

/** From the schema of 1.0.0 to that of 2.0.0. */
export const version2: ReadonlyArray<Stage> = [
  { prepare: buildKeys, migrations: { "0005_key_by_account": keyByAccount, "0006_create_routing": createRouting } },
  { prepare: validateForeignKey, migrations: { "0007_kek_registration": kekRegistration } },
  { finishes: true, migrations: { "0008_drop_keys_by_id": dropKeysById } }
]
