import { Effect, Option, Schedule } from "effect"
import { Reactivity } from "effect/reactivity"
import { Migrator, SqlClient, type SqlError } from "effect/sql"
import { type DatabaseSettings, makeClient } from "./connection/Database.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import { failureOf } from "./connection/DatabaseErrors.ts"
import type { DatabaseTarget } from "./connection/DatabaseTarget.ts"
import type { Stage } from "./migrations/Stage.ts"
import { version1 } from "./migrations/version1.ts"
import { version2 } from "./migrations/version2.ts"

const stages: ReadonlyArray<Stage> = [version1, ...version2]

const newestOf = ({ migrations }: Stage) =>
  Math.max(...Object.keys(migrations).map((name) => Number.parseInt(name, 10)))

/** The newest migration that this build knows. */
export const latest = Math.max(...stages.map(newestOf))

/** The newest migration that this build needs. */
export const required = Math.max(...stages.filter(({ finishes }) => finishes !== true).map(newestOf))

/** SQLSTATE of a lock that was not free in time. */
export const lockNotAvailable = "55P03"

const scrubbed = (error: SqlError.SqlError | Migrator.MigrationError) => {
  const inner = error._tag === "MigrationError" ? error.cause : error
  return typeof inner === "object" && inner !== null && "reason" in inner
    ? failureOf(inner as SqlError.SqlError)
    : new DatabaseFailure({ kind: error._tag, sqlstate: undefined, constraint: undefined })
}

/** How the schema compares with the migrations that this build knows. */
export type SchemaState = "behind" | "current" | "newer"

const stateOf = Option.match({
  onNone: (): SchemaState => "behind",
  onSome: (id: number): SchemaState => (id < required ? "behind" : id > latest ? "newer" : "current")
})

/**
 * A statement that waits for a table lock makes all later users of the table wait behind it, so each attempt is short
 * and leaves room for them afterwards.
 */
const locking = { timeout: 1000, attempts: 5, pause: "1 second" } as const

/** The advisory lock held while migrating. Waiting for it blocks no other statement. */
export const migrating = 0x6d696772

/** How often to try the lock. A transaction that waited for it would delay the preparations of the instance that holds it. */
const turnPause = "100 millis"

/** How long preparations wait for older transactions, in milliseconds. They block no other statement meanwhile. */
export const preparing = { lock_timeout: "60000", statement_timeout: "0" }

/** Runs statements in a transaction that waits at most `timeout` milliseconds for each lock. */
export const withLockTimeout =
  (sql: SqlClient.SqlClient, timeout: number) =>
  <A, E, R>(statements: Effect.Effect<A, E, R>) =>
    sql.withTransaction(Effect.andThen(sql.unsafe(`SET LOCAL lock_timeout = ${timeout}`), statements))

/**
 * The newest migration that the database has; none if it was never migrated. Only a statement that reads a table notices
 * one that another session has created since the transaction began.
 */
export const current = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const tables = yield* sql`SELECT 1 FROM pg_class WHERE oid = to_regclass('effect_sql_migrations')`
    if (tables.length === 0) return Option.none<number>()
    const [newest] = yield* sql<{ id: number | null }>`SELECT max(migration_id) AS id FROM effect_sql_migrations`
    return Option.fromNullishOr(newest?.id)
  })

/** Runs the stages that the database lacks, one after the other. Returns the names of the migrations that were run. */
const runStages = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, finish: boolean) {
  const ran: Array<string> = []
  const isNew = Option.isNone(yield* current(sql))
  const run = (migrations: Stage["migrations"]) =>
    Effect.provideService(Migrator.make({})({ loader: Migrator.fromRecord(migrations) }), SqlClient.SqlClient, sql)
  // In a transaction, the statement after a CREATE TABLE that failed would hide why.
  if (isNew) yield* run({})
  for (const stage of stages) {
    if (stage.finishes === true && !isNew && !finish) continue
    if (Option.exists(yield* current(sql), (id) => id >= newestOf(stage))) continue
    if (stage.prepare !== undefined) yield* stage.prepare(sql)
    for (const [, name] of yield* withLockTimeout(sql, locking.timeout)(run(stage.migrations))) ran.push(name)
  }
  return ran
})

/** Runs an effect while no other instance migrates; none if one does. */
export const inTurn = <A, E, R>(sql: SqlClient.SqlClient, effect: Effect.Effect<A, E, R>) =>
  sql.withTransaction(
    Effect.gen(function* () {
      const [turn] = yield* sql<{ mine: boolean }>`SELECT pg_try_advisory_xact_lock(${migrating}::bigint) AS mine`
      if (turn?.mine !== true) return Option.none<A>()
      // Also ends the snapshot of the SELECT, for which an index built concurrently would wait.
      yield* sql`SET LOCAL idle_in_transaction_session_timeout = 0`
      return Option.some(yield* effect)
    })
  )

/** The sessions of instances and commands of 1.0.0, which needs what `finish` drops. Roles see those of others too. */
const sessionsOf1 = (sql: SqlClient.SqlClient) =>
  sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'byok'`

/**
 * What may be done to the schema: `check` changes nothing; `migrate` adds what this version needs, and instances of the
 * version before keep working; `finish` also drops what only those need.
 */
export type Migrating = "check" | "migrate" | "finish"

/**
 * Reads the version of the schema and, only if it is behind, brings it up to date as far as it may, without a statement
 * timeout. Instances that start together migrate once. Returns the state, the names of the migrations that were run,
 * whether there is something left to finish, and whether that is because 1.0.0 is connected to the database.
 */
export const openSchema = (
  target: DatabaseTarget,
  settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">,
  may: Migrating
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const client = yield* makeClient(target, { ...settings, poolSize: 1 })
      const readCurrent = withLockTimeout(client, locking.timeout)(current(client))
      const found = yield* readCurrent
      const state = stateOf(found)
      const isDone = state === "newer" || Option.contains(found, latest)
      if (may === "check" || isDone || (state === "current" && may === "migrate")) {
        return { state, migrated: [], unfinished: state === "current" && !isDone }
      }
      if (may === "finish" && Option.isSome(found) && (yield* sessionsOf1(client)).length > 0) {
        return { state, migrated: [], unfinished: true, needed: true }
      }
      const migrator = yield* makeClient(
        target,
        { ...settings, poolSize: 1 },
        settings.pooler ? {} : { startupParameters: preparing }
      )
      for (;;) {
        const ran = yield* inTurn(client, runStages(migrator, may === "finish"))
        if (Option.isSome(ran)) {
          return {
            state: "current" as const,
            migrated: ran.value,
            unfinished: !Option.contains(yield* readCurrent, latest)
          }
        }
        yield* Effect.sleep(turnPause)
      }
    })
  ).pipe(
    Effect.provide(Reactivity.layer),
    Effect.mapError(scrubbed),
    Effect.retry({
      while: ({ sqlstate }) => sqlstate === lockNotAvailable,
      times: locking.attempts - 1,
      schedule: Schedule.spaced(locking.pause)
    })
  )
