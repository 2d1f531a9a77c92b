import { PgClient, PgMigrator } from "@effect/sql-pg"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Option } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlError } from "effect/sql"
import { type DatabaseSettings, makeClient } from "./connection/Database.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import { failureOf } from "./connection/failureOf.ts"
import type { DatabaseTarget } from "./connection/DatabaseTarget.ts"
import createTables from "./migrations/0001_create_tables.ts"
import createReceipts from "./migrations/0002_create_receipts.ts"
import createAudit from "./migrations/0003_create_audit.ts"
import retireKeks from "./migrations/0004_retire_keks.ts"

const migrations = {
  "0001_create_tables": createTables,
  "0002_create_receipts": createReceipts,
  "0003_create_audit": createAudit,
  "0004_retire_keks": retireKeks
}

/** The newest migration that this build knows. */
export const latest = Math.max(...Object.keys(migrations).map((name) => Number.parseInt(name, 10)))

const scrubbed = (error: SqlError.SqlError | PgMigrator.MigrationError) => {
  const inner = error._tag === "MigrationError" ? error.cause : error
  return typeof inner === "object" && inner !== null && "reason" in inner
    ? failureOf(inner as SqlError.SqlError)
    : new DatabaseFailure({ kind: error._tag, sqlstate: undefined, constraint: undefined })
}

/**
 * Brings the schema up to date on its own connection, without a statement timeout, and returns the names of the
 * migrations it ran. The migrator's table lock makes instances that start together migrate once.
 */
export const migrate = (target: DatabaseTarget, settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">) =>
  Effect.scoped(
    Effect.flatMap(makeClient(target, { ...settings, poolSize: 1 }), (client) =>
      PgMigrator.run({ loader: PgMigrator.fromRecord(migrations) }).pipe(
        Effect.provideService(SqlClient.SqlClient, client),
        Effect.provideService(PgClient.PgClient, client)
      )
    )
  ).pipe(
    Effect.provide([Reactivity.layer, NodeServices.layer]),
    Effect.map((ran) => ran.map(([, name]) => name)),
    Effect.mapError(scrubbed)
  )

/** The newest migration that the database has; none if it was never migrated. */
export const current = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const [table] = yield* sql<{ found: boolean }>`SELECT to_regclass('effect_sql_migrations') IS NOT NULL AS found`
    if (table?.found !== true) return Option.none<number>()
    const [newest] = yield* sql<{ id: number | null }>`SELECT max(migration_id) AS id FROM effect_sql_migrations`
    return Option.fromNullishOr(newest?.id)
  })
