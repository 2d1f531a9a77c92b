import { Effect, Option } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { type DatabaseSettings, makeClient } from "./connection/Database.ts"
import { failureOf } from "./connection/DatabaseErrors.ts"
import type { DatabaseTarget } from "./connection/DatabaseTarget.ts"
import { distributedTables } from "./inspectSession.ts"
import { inTurn, preparing } from "./Migrations.ts"

/** Foreign keys within an account, which Citus enforces on its node once both tables are distributed. */
const foreignKeys = [
  ["workspaces", "workspaces_account_id_fkey", "(account_id) REFERENCES accounts"],
  ["pools", "pools_workspace", "(account_id, workspace_id) REFERENCES workspaces (account_id, id)"],
  [
    "credentials",
    "credentials_pool",
    "(account_id, workspace_id, provider) REFERENCES pools (account_id, workspace_id, provider)"
  ],
  ...["credential_parkings", "credential_use"].map(
    (table) =>
      [
        table,
        `${table}_credential`,
        "(account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE"
      ] as const
  )
] as const

const stepOf = (sql: SqlClient.SqlClient, table: (typeof distributedTables)[number]) => {
  switch (table) {
    case "accounts":
      return Effect.andThen(
        Effect.forEach([...foreignKeys, ["api_keys", "api_keys_account_id_fkey"] as const], ([table, name]) =>
          sql.unsafe(`ALTER TABLE ${table} DROP CONSTRAINT IF EXISTS ${name}`)
        ),
        sql`SELECT create_distributed_table('accounts', 'id')`
      )
    // Comes last. Citus then commits an entry with the act on another node, and starts its numbers again.
    case "audit_entries":
      return Effect.gen(function* () {
        for (const [table, name, definition] of foreignKeys) {
          yield* sql.unsafe(`ALTER TABLE ${table} ADD CONSTRAINT ${name} FOREIGN KEY ${definition}`)
        }
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

/** What the database lacks to distribute its tables, if anything. */
const lacking = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const citus = yield* sql`SELECT 1 FROM pg_extension WHERE extname = 'citus'`
    if (citus.length === 0) return Option.some("the extension citus is not installed in it")
    const [nodes] = yield* sql<{ coordinator: boolean; workers: boolean }>`
      SELECT coalesce(bool_or(groupid = 0), false) AS coordinator, coalesce(bool_or(groupid > 0), false) AS workers
      FROM pg_dist_node WHERE isactive`
    if (nodes?.coordinator !== true) return Option.some("Citus was not told its host: call citus_set_coordinator_host")
    return nodes.workers ? Option.none() : Option.some("Citus has no worker: call citus_add_node")
  })

/**
 * Spreads the rows of tenants over the nodes of a Citus cluster by account, a table after the other: one that an earlier
 * attempt distributed stays. Returns the tables that this one distributed, or what the database lacks.
 */
export const distribute = (target: DatabaseTarget, settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">) =>
  Effect.scoped(
    Effect.gen(function* () {
      const lock = yield* makeClient(target, { ...settings, poolSize: 1 })
      const sql = yield* makeClient(target, { ...settings, poolSize: 1 }, { startupParameters: preparing })
      const lacks = yield* lacking(sql)
      if (Option.isSome(lacks)) return { lacks: lacks.value }
      const distributing = Effect.filter(
        distributedTables,
        Effect.fnUntraced(function* (table) {
          const done = yield* sql`SELECT 1 FROM pg_dist_partition WHERE logicalrelid = ${table}::text::regclass`
          if (done.length === 0) yield* sql.withTransaction(stepOf(sql, table))
          return done.length === 0
        })
      )
      const distributed = yield* inTurn(lock, distributing)
      return Option.isSome(distributed) ? { distributed: distributed.value } : { lacks: "another migration is running" }
    })
  ).pipe(Effect.provide(Reactivity.layer), Effect.mapError(failureOf))
