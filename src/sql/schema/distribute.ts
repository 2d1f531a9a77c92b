import { Effect, Option } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { type ClientSettings, makeClient } from "../connection/Database.ts"
import { failureOf } from "../connection/DatabaseErrors.ts"
import type { DatabaseTarget } from "../connection/DatabaseTarget.ts"
import { schemaChangeSettings, withMigrationLock } from "./Migrations.ts"

/** The tables that `distribute` hands to Citus, in this order: the last one shows that it has finished. */
const distributedTables = [
  "accounts",
  "workspaces",
  "pools",
  "credentials",
  "idempotency_records",
  "credential_parkings",
  "credential_use",
  "audit_entries"
] as const

type ForeignKey = readonly [table: string, name: string, definition: string]

const toCredential = "(account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE"

/** Foreign keys within an account, which Citus enforces once both tables are distributed. */
const accountKeys: ReadonlyArray<ForeignKey> = [
  ["workspaces", "workspaces_account_id_fkey", "(account_id) REFERENCES accounts"],
  ["pools", "pools_workspace", "(account_id, workspace_id) REFERENCES workspaces (account_id, id)"],
  [
    "credentials",
    "credentials_pool",
    "(account_id, workspace_id, provider) REFERENCES pools (account_id, workspace_id, provider)"
  ],
  ["credential_parkings", "credential_parkings_credential", toCredential],
  ["credential_use", "credential_use_credential", toCredential]
]

/** All foreign keys that distributing drops: a table on the coordinator cannot refer to a distributed one. */
const droppedKeys: ReadonlyArray<ForeignKey> = [
  ...accountKeys,
  ["api_keys", "api_keys_account_id_fkey", "(account_id) REFERENCES accounts"],
  ["links", "links_account_id_fkey", "(account_id) REFERENCES accounts"]
]

/** The foreign keys that are missing on existing tables. */
const missingOf = (sql: SqlClient.SqlClient, keys: ReadonlyArray<ForeignKey>) =>
  Effect.map(
    sql<{ name: string }>`
      SELECT key.name FROM unnest(${keys.map(([table]) => table)}::text[], ${keys.map(([, name]) => name)}::text[])
        AS key (tablename, name)
      WHERE to_regclass(tablename) IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM pg_constraint WHERE conrelid = to_regclass(tablename) AND conname = key.name)`,
    (rows) => keys.filter(([, name]) => rows.some((row) => row.name === name))
  )

/** Adds the missing foreign keys, and returns their names. */
const restore = (sql: SqlClient.SqlClient, keys: ReadonlyArray<ForeignKey>) =>
  Effect.gen(function* () {
    const missing = yield* missingOf(sql, keys)
    for (const [table, name, definition] of missing) {
      yield* sql.unsafe(`ALTER TABLE ${table} ADD CONSTRAINT ${name} FOREIGN KEY ${definition}`)
    }
    return missing.map(([, name]) => name)
  })

/**
 * The progress of distribution: `partial` if only some tables are distributed, `keys_missing` if none is but foreign
 * keys are missing.
 */
export const distributionOf = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const citus = yield* sql`SELECT 1 FROM pg_class WHERE oid = to_regclass('pg_catalog.pg_dist_partition')`
    if (citus.length > 0) {
      const { length } = yield* sql`
        SELECT 1 FROM pg_catalog.pg_dist_partition
        WHERE logicalrelid IN (SELECT to_regclass(name) FROM unnest(${distributedTables}::text[]) AS name)`
      if (length > 0) return length < distributedTables.length ? ("partial" as const) : ("distributed" as const)
    }
    return (yield* missingOf(sql, droppedKeys)).length > 0 ? ("keys_missing" as const) : ("none" as const)
  })

/** Distributes one table. The first step drops foreign keys; the last restores those within an account. */
const stepOf = (sql: SqlClient.SqlClient, table: (typeof distributedTables)[number]) => {
  switch (table) {
    case "accounts":
      return Effect.andThen(
        Effect.forEach(droppedKeys, ([table, name]) =>
          sql.unsafe(`ALTER TABLE ${table} DROP CONSTRAINT IF EXISTS ${name}`)
        ),
        sql`SELECT create_distributed_table('accounts', 'id')`
      )
    // Citus's metadata lets this table, which stays on this node, change in a transaction with rows of other nodes.
    // Adding it to the metadata resets `seq`. Before that, deletes the rows that other tables have left on this node.
    case "audit_entries":
      return Effect.gen(function* () {
        yield* restore(sql, accountKeys)
        for (const name of distributedTables.slice(0, -1)) {
          yield* sql`SELECT truncate_local_data_after_distributing_table(${name}::text::regclass)`
        }
        yield* sql`SELECT citus_add_local_table_to_metadata('audit_entries')`
        yield* sql`SELECT setval(pg_get_serial_sequence('audit_entries', 'seq'), (SELECT max(seq) FROM audit_entries))`
      })
    default:
      return sql`SELECT create_distributed_table(${table}::text, 'account_id', colocate_with => 'accounts')`
  }
}

/** Why the tables cannot be distributed; undefined if they can. */
const missingPrecondition = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const citus = yield* sql`SELECT 1 FROM pg_extension WHERE extname = 'citus'`
    if (citus.length === 0) return "the extension citus is not installed in it"
    const [nodes] = yield* sql<{ coordinator: boolean; workers: boolean }>`
      SELECT coalesce(bool_or(groupid = 0), false) AS coordinator, coalesce(bool_or(groupid > 0), false) AS workers
      FROM pg_dist_node WHERE isactive`
    if (nodes?.coordinator !== true) return "Citus was not told its host: call citus_set_coordinator_host"
    return nodes.workers ? undefined : "Citus has no worker: call citus_add_node"
  })

/** Changes the schema. Returns none, without a change, if another instance migrates. */
const changeSchema = <A>(
  target: DatabaseTarget,
  settings: ClientSettings,
  change: (sql: SqlClient.SqlClient) => Effect.Effect<A, SqlError.SqlError>
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const lockClient = yield* makeClient(target, settings)
      const sql = yield* makeClient(target, settings, { startupParameters: schemaChangeSettings })
      return yield* withMigrationLock(lockClient, change(sql))
    })
  ).pipe(Effect.mapError(failureOf))

/**
 * Spreads the rows of tenants over the nodes of a Citus cluster by account, table by table. Skips tables that an
 * earlier attempt distributed. Returns the names of the tables that it distributed, or in `lacks` why it cannot.
 */
export const distribute = (target: DatabaseTarget, settings: ClientSettings) =>
  Effect.map(
    changeSchema(
      target,
      settings,
      Effect.fnUntraced(function* (sql) {
        const lacks = yield* missingPrecondition(sql)
        if (lacks !== undefined) return { lacks }
        const distributed = yield* Effect.filter(
          distributedTables,
          Effect.fnUntraced(function* (table) {
            const existing = yield* sql`SELECT 1 FROM pg_dist_partition WHERE logicalrelid = ${table}::text::regclass`
            if (existing.length === 0) yield* sql.withTransaction(stepOf(sql, table))
            return existing.length === 0
          })
        )
        return { distributed }
      })
    ),
    Option.getOrElse(() => ({ lacks: "another migration is running", distributed: undefined }))
  )

/** Restores and names the foreign keys missing after undistributing from Citus; none if another instance migrates. */
export const restoreForeignKeys = (target: DatabaseTarget, settings: ClientSettings) =>
  Effect.map(
    changeSchema(target, settings, (sql) => sql.withTransaction(restore(sql, droppedKeys))),
    Option.getOrElse(() => [])
  )
