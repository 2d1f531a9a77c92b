import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Redacted } from "effect"
import type { SqlClient } from "effect/sql"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { migrate } from "../support/database/migrate.ts"
import { adminClient, databaseSettings, freshDatabase } from "../support/database/freshDatabase.ts"
import { schema4 } from "../support/database/schema4.ts"
import { holdOpen, terminateWaiting, untilWaiting } from "../support/database/transactions.ts"
import { upgradeUnderLoad } from "../support/database/upgradeUnderLoad.ts"

const names = ["key_by_account", "create_routing", "kek_registration"]

const older = Effect.gen(function* () {
  const url = yield* freshDatabase
  yield* schema4(url)
  const target = parseDatabaseUrl(Redacted.make(url))
  return {
    sql: yield* adminClient(url),
    migrated: migrate(target, databaseSettings),
    finished: migrate(target, databaseSettings, "finish")
  }
})

const invalid = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ name: string }>`SELECT indexrelid::regclass::text AS name FROM pg_index WHERE NOT indisvalid`,
    (rows) => rows.map(({ name }) => name)
  )
const byIdAlone = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ name: string }>`
      SELECT indexrelid::regclass::text AS name FROM pg_index
      JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] AND attname = 'id'
      WHERE indisunique AND indrelid IN ('credentials'::regclass, 'workspaces'::regclass) ORDER BY 1`,
    (rows) => rows.map(({ name }) => name)
  )
const notValidated = (sql: SqlClient.SqlClient) => sql`SELECT 1 FROM pg_constraint WHERE NOT convalidated`
const primaryKey = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ columns: string }>`
      SELECT pg_get_constraintdef(oid) AS columns FROM pg_constraint WHERE conname = 'credentials_pkey'`,
    ([found]) => found?.columns
  )

describe("the migration of 1.0.0's schema to keys by account", () => {
  it.live("keeps every row while creates and gets go on, none of which fails", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase
      const found = yield* Effect.promise(() => upgradeUnderLoad(url, 30, 100))
      assert.deepStrictEqual([found.migrations, found.failed], [names, []])
      assert.deepStrictEqual([found.kept, found.stored], [found.rows, found.created])
      assert.isAtLeast(found.rows, 3000)
      assert.isAtLeast(found.created, 1)
      const sql = yield* adminClient(url)
      assert.deepStrictEqual([yield* invalid(sql), yield* notValidated(sql)], [[], []])
    })
  )

  it.live("is finished on request, which drops what instances of 1.0.0 need", () =>
    Effect.gen(function* () {
      const { finished, migrated, sql } = yield* older
      assert.deepStrictEqual(yield* migrated, names)
      assert.deepStrictEqual(yield* byIdAlone(sql), ["credentials_id", "workspaces_id_unique"])
      assert.deepStrictEqual(yield* migrated, [])
      assert.deepStrictEqual(yield* finished, ["drop_keys_by_id"])
      assert.deepStrictEqual(yield* byIdAlone(sql), [])
      assert.deepStrictEqual(yield* finished, [])
    })
  )

  it.live("is finished with the rest if that is requested at once", () =>
    Effect.gen(function* () {
      const { finished } = yield* older
      assert.deepStrictEqual(yield* finished, [...names, "drop_keys_by_id"])
    })
  )

  it.live("goes on where one was killed that was building an index", () =>
    Effect.gen(function* () {
      const { migrated, sql } = yield* older
      const end = yield* holdOpen(sql, "LOCK TABLE credentials IN ROW EXCLUSIVE MODE")
      const killed = yield* Effect.forkChild(Effect.exit(migrated))
      yield* untilWaiting(sql, 1)
      yield* terminateWaiting(sql)
      assert.isTrue(Exit.isFailure(yield* Fiber.join(killed)))
      yield* end
      assert.deepStrictEqual(yield* invalid(sql), ["credentials_account"])
      assert.strictEqual(yield* primaryKey(sql), "PRIMARY KEY (id)", "nothing has changed")
      assert.deepStrictEqual(yield* migrated, names)
      assert.deepStrictEqual([yield* invalid(sql), yield* notValidated(sql)], [[], []])
      assert.strictEqual(yield* primaryKey(sql), "PRIMARY KEY (account_id, id)")
    })
  )

  it.live(
    "gives up on a table that somebody keeps locked, and has changed nothing that the older version needs (F1)",
    () =>
      Effect.gen(function* () {
        const { migrated, sql } = yield* older
        const end = yield* holdOpen(sql, "LOCK TABLE receipts IN ACCESS SHARE MODE")
        assert.strictEqual((yield* Effect.flip(migrated)).sqlstate, "55P03")
        assert.strictEqual(yield* primaryKey(sql), "PRIMARY KEY (id)")
        yield* end
        assert.deepStrictEqual(yield* migrated, names)
      }),
    30_000
  )

  it.live("is run once by instances that start together", () =>
    Effect.gen(function* () {
      const { migrated } = yield* older
      const ran = yield* Effect.all([migrated, migrated, migrated], { concurrency: "unbounded" })
      assert.deepStrictEqual(ran.flat(), names)
    })
  )
})
