import { Effect, Option, Schedule } from "effect"
import { Migrator, SqlClient, type SqlError } from "effect/sql"
import { type ClientSettings, makeClient } from "../connection/Database.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { failureOf } from "../connection/DatabaseErrors.ts"
import type { DatabaseTarget } from "../connection/DatabaseTarget.ts"
import { schema } from "./schema.ts"

const migrations = {
  "0001_schema": Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.forEach(schema, (statement) => sql.unsafe(statement), { discard: true })
  )
}

/** The number of this build's newest migration. The service needs a database in which it has run. */
export const latestMigration = Math.max(...Object.keys(migrations).map((name) => Number.parseInt(name, 10)))

/** SQLSTATE of a lock timeout. */
export const lockNotAvailable = "55P03"

/** Converts an error to one that quotes no stored value. */
const scrubbed = (error: SqlError.SqlError | Migrator.MigrationError) => {
  const inner = error._tag === "MigrationError" ? error.cause : error
  return typeof inner === "object" && inner !== null && "reason" in inner
    ? failureOf(inner as SqlError.SqlError)
    : new DatabaseFailure({ kind: error._tag, sqlstate: undefined, constraint: undefined })
}

/** The state of the schema, compared with the migrations of this build. */
export type SchemaState = "behind" | "current" | "newer"

const stateOf = Option.match({
  onNone: (): SchemaState => "behind",
  onSome: (id: number): SchemaState => (id < latestMigration ? "behind" : id > latestMigration ? "newer" : "current")
})

/** Attempts are short, because a statement that waits for a table's lock blocks all later ones on the table. */
const locking = { timeout: 1000, attempts: 5, pause: "1 second" } as const

/** The key of the advisory lock that only one migrating instance has at a time. */
export const migrationLock = 0x6d696772

/** The pause between attempts to take `migrationLock`: a statement that waits for it would hold back VACUUM. */
const lockPause = "100 millis"

/**
 * Session settings for changes of the schema, in milliseconds: a limit for waiting for locks, which `withLockTimeout`
 * overrides, and no limit for statements.
 */
export const schemaChangeSettings = { lock_timeout: "60000", statement_timeout: "0" }

/** Runs statements in a transaction that waits at most `timeout` milliseconds for each lock. */
export const withLockTimeout =
  (sql: SqlClient.SqlClient, timeout: number) =>
  <A, E, R>(statements: Effect.Effect<A, E, R>) =>
    sql.withTransaction(Effect.andThen(sql.unsafe(`SET LOCAL lock_timeout = ${timeout}`), statements))

/**
 * The number of the newest migration that has run in the database, if any. Uses two statements, because the second
 * fails without the table.
 */
export const appliedMigration = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const tables = yield* sql`SELECT 1 FROM pg_class WHERE oid = to_regclass('effect_sql_migrations')`
    if (tables.length === 0) return Option.none<number>()
    const [newest] = yield* sql<{ id: number | null }>`SELECT max(migration_id) AS id FROM effect_sql_migrations`
    return Option.fromNullishOr(newest?.id)
  })

/** Runs the migrations that the database lacks, in one transaction. Returns their names. */
const migrate = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const run = (record: Parameters<typeof Migrator.fromRecord>[0]) =>
    Effect.provideService(Migrator.make({})({ loader: Migrator.fromRecord(record) }), SqlClient.SqlClient, sql)
  // Outside the transaction: inside, a failure to create the table of migrations would be hidden by the next error.
  if (Option.isNone(yield* appliedMigration(sql))) yield* run({})
  const ran = yield* withLockTimeout(sql, locking.timeout)(run(migrations))
  return ran.map(([, name]) => name)
})

/** Runs an effect under `migrationLock`. Returns none, without running it, if another instance has the lock. */
export const withMigrationLock = <A, E, R>(sql: SqlClient.SqlClient, effect: Effect.Effect<A, E, R>) =>
  sql.withTransaction(
    Effect.gen(function* () {
      const [lock] = yield* sql<{ mine: boolean }>`SELECT pg_try_advisory_xact_lock(${migrationLock}::bigint) AS mine`
      if (lock?.mine !== true) return Option.none<A>()
      // Keeps the lock while another connection runs the effect.
      yield* sql`SET LOCAL idle_in_transaction_session_timeout = 0`
      return Option.some(yield* effect)
    })
  )

/** `check` changes nothing; `migrate` runs missing migrations. */
export type MigrationMode = "check" | "migrate"

/**
 * Reads the version of the schema and, in mode `migrate`, runs missing migrations without a statement timeout.
 * Instances that start together migrate once. Returns the state and the names of the migrations that ran.
 */
export const openSchema = (target: DatabaseTarget, settings: ClientSettings, mode: MigrationMode) =>
  Effect.scoped(
    Effect.gen(function* () {
      const client = yield* makeClient(target, settings)
      const state = stateOf(yield* withLockTimeout(client, locking.timeout)(appliedMigration(client)))
      if (mode === "check" || state !== "behind") return { state, migrated: [] }
      const migrator = yield* makeClient(target, settings, { startupParameters: schemaChangeSettings })
      for (;;) {
        const ran = yield* withMigrationLock(client, migrate(migrator))
        if (Option.isSome(ran)) return { state: "current" as const, migrated: ran.value }
        yield* Effect.sleep(lockPause)
      }
    })
  ).pipe(
    Effect.mapError(scrubbed),
    Effect.retry({
      while: ({ sqlstate }) => sqlstate === lockNotAvailable,
      times: locking.attempts - 1,
      schedule: Schedule.spaced(locking.pause)
    })
  )
