import { createHash } from "node:crypto"
import { Effect, Option, Schedule } from "effect"
import { Migrator, SqlClient, type SqlError } from "effect/sql"
import { type ClientSettings, makeClient } from "../connection/Database.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { failureOf } from "../connection/DatabaseErrors.ts"
import type { DatabaseTarget } from "../connection/DatabaseTarget.ts"
import { schema } from "./schema.ts"

/** Tells apart builds that make different schemas under one number. */
const hash = createHash("sha256").update(schema.join(";")).digest("hex").slice(0, 8)

const migrations = {
  [`0001_schema_${hash}`]: Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.forEach(schema, (statement) => sql.unsafe(statement), { discard: true })
  )
}

/** SQLSTATE of a lock timeout. */
export const lockNotAvailable = "55P03"

/** Converts an error to one that quotes no stored value. */
const scrubbed = (error: SqlError.SqlError | Migrator.MigrationError) => {
  const inner = error._tag === "MigrationError" ? error.cause : error
  return typeof inner === "object" && inner !== null && "reason" in inner
    ? failureOf(inner as SqlError.SqlError)
    : new DatabaseFailure({ kind: error._tag, sqlstate: undefined, constraint: undefined })
}

/**
 * The state of the schema, compared with the migrations of this build: `foreign` if another build ran others under their
 * numbers, and `incomplete` if a table is missing.
 */
export type SchemaState = "behind" | "current" | "newer" | "foreign" | "incomplete"

const tables = schema.flatMap((statement) => /^CREATE TABLE (\w+)/.exec(statement)?.[1] ?? [])

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

/** Reads the state of the schema. Uses two statements, because the second fails without the table. */
export const readSchemaState = (sql: SqlClient.SqlClient): Effect.Effect<SchemaState, SqlError.SqlError> =>
  Effect.gen(function* () {
    const journal = yield* sql`SELECT 1 FROM pg_class WHERE oid = to_regclass('effect_sql_migrations')`
    if (journal.length === 0) return "behind"
    const applied = yield* sql<{ name: string; present: number }>`
      SELECT to_char(migration_id, 'FM0000') || '_' || name AS name,
        (SELECT count(*)::int FROM unnest(${tables}::text[]) AS needed JOIN pg_class ON oid = to_regclass(needed)) AS present
      FROM effect_sql_migrations ORDER BY migration_id`
    const known = Object.keys(migrations)
    if (applied.some(({ name }, index) => name !== (known[index] ?? name))) return "foreign"
    if (applied.length < known.length) return "behind"
    if ((applied[0]?.present ?? 0) < tables.length) return "incomplete"
    return applied.length > known.length ? "newer" : "current"
  })

/** Runs the migrations that the database lacks, in one transaction. Returns their names. */
const migrate = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const run = (record: Parameters<typeof Migrator.fromRecord>[0]) =>
    Effect.provideService(Migrator.make({})({ loader: Migrator.fromRecord(record) }), SqlClient.SqlClient, sql)
  // Outside the transaction: inside, a failure to create the table of migrations would be hidden by the next error.
  yield* run({})
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
      const state = yield* withLockTimeout(client, locking.timeout)(readSchemaState(client))
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
