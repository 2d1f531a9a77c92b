import { Cause, Duration, Effect, Exit, Fiber, Redacted } from "effect"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { migrationLock, readSchemaState } from "../../../src/sql/schema/Migrations.ts"
import { migrate } from "../../support/database/migrate.ts"
import { adminClient, databaseSettings, freshDatabase } from "../../support/database/freshDatabase.ts"
import { holdOpen } from "../../support/database/transactions.ts"
import { eventually } from "../../support/process/eventually.ts"
import { assert, describe, it } from "../../support/it.ts"

const empty = Effect.gen(function* () {
  const url = yield* freshDatabase
  const sql = yield* adminClient(url)
  const tables = sql<{ name: string }>`
    SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1`.pipe(
    Effect.map((rows) => rows.map(({ name }) => name))
  )
  return { sql, tables, target: parseDatabaseUrl(Redacted.make(url)) }
})

/** The names of all migrations. */
const only = /^schema_[0-9a-f]{8}$/

describe("migrate", () => {
  it.live("brings an empty database to the newest migration; a second run changes nothing", function* () {
    const { sql, tables, target } = yield* empty
    assert.match(String(yield* migrate(target, databaseSettings)), only)
    assert.deepStrictEqual(yield* readSchemaState(sql), "current")
    assert.deepStrictEqual(yield* tables, [
      "accounts",
      "api_keys",
      "audit_checkpoints",
      "audit_entries",
      "credential_parkings",
      "credential_use",
      "credentials",
      "effect_sql_migrations",
      "event_cursors",
      "idempotency_records",
      "keks",
      "keyring_instances",
      "links",
      "pools",
      "workspaces"
    ])
    assert.deepStrictEqual(yield* migrate(target, databaseSettings), [])
    assert.deepStrictEqual(yield* readSchemaState(sql), "current")
  })

  it.live("runs once if several instances start together on an empty database", function* () {
    const { sql, target } = yield* empty
    const ran = yield* Effect.forEach(Array.from({ length: 8 }), () => migrate(target, databaseSettings), {
      concurrency: "unbounded"
    })
    assert.match(String(ran.flat()), only)
    assert.lengthOf(yield* sql`SELECT 1 FROM effect_sql_migrations`, 1)
  })

  it.live("rolls back if it fails, shows no table name in the error, and succeeds later", function* () {
    const { sql, tables, target } = yield* empty
    yield* sql`CREATE TABLE keks (canary text)`
    const exit = yield* Effect.exit(migrate(target, databaseSettings))
    assert(Exit.isFailure(exit))
    const failure = Cause.squash(exit.cause)
    assert.instanceOf(failure, DatabaseFailure)
    assert.strictEqual(failure.sqlstate, "42P07")
    assert.notInclude(Cause.pretty(exit.cause), "keks")
    assert.deepStrictEqual(yield* tables, ["effect_sql_migrations", "keks"])
    assert.isEmpty(yield* sql`SELECT 1 FROM effect_sql_migrations`)

    yield* sql`DROP TABLE keks`
    assert.match(String(yield* migrate(target, databaseSettings)), only)
  })

  it.live("waits without a timeout for another instance that migrates, then has nothing to do (F1)", function* () {
    const { sql, target } = yield* empty
    yield* migrate(target, databaseSettings)
    yield* sql`DELETE FROM effect_sql_migrations`
    const end = yield* holdOpen(
      sql,
      `INSERT INTO effect_sql_migrations (migration_id, name) SELECT 1, 'another''s'
          FROM pg_advisory_xact_lock(${migrationLock})`
    )
    const settings = { ...databaseSettings, statementTimeout: Duration.millis(1) }
    const second = yield* Effect.forkChild(migrate(target, settings))
    yield* eventually(
      "the second has found the schema behind",
      Effect.map(
        sql`
            SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'COMMIT' AND state = 'idle'`,
        ({ length }) => length === 1
      )
    )
    yield* end
    assert.deepStrictEqual(yield* Fiber.join(second), [])
  })

  it.live("takes only read locks on a schema that is up to date (F1)", function* () {
    const { sql, target } = yield* empty
    yield* migrate(target, databaseSettings)
    const release = yield* holdOpen(sql, "LOCK TABLE effect_sql_migrations IN EXCLUSIVE MODE")
    assert.deepStrictEqual(yield* migrate(target, databaseSettings), [])
    yield* release
  })
})
