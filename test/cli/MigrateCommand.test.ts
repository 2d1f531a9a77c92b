import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { eventually } from "../support/process/eventually.ts"
import { adminClient, freshDatabase, migratedDatabase } from "../support/database/freshDatabase.ts"
import { schema4 } from "../support/database/schema4.ts"
import { onlyObject } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { latest } from "../../src/sql/Migrations.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { startService } from "../support/process/ServiceProcess.ts"

describe("byok migrate", () => {
  it.live("brings an empty database up to date, and says so when there is nothing to do", () =>
    Effect.gen(function* () {
      const DATABASE_URL = yield* freshDatabase
      const run = (...args: ReadonlyArray<string>) => runCommand(args, { DATABASE_URL })
      assert.deepStrictEqual(yield* run("migrate"), {
        code: 0,
        stderr: "",
        stdout:
          "Migrated: create_tables, create_receipts, create_audit, retire_keks, key_by_account, create_routing, kek_registration, drop_keys_by_id\n"
      })
      assert.deepStrictEqual(yield* run("migrate"), { code: 0, stderr: "", stdout: "The database is up to date.\n" })
      assert.deepStrictEqual(onlyObject(yield* run("migrate", "--json")), { migrated: [], unfinished: false })
    })
  )

  it.live("--distribute refuses a database without Citus in one sentence", () =>
    Effect.gen(function* () {
      const DATABASE_URL = yield* migratedDatabase
      const stderr =
        "DATABASE_URL cannot be distributed: the extension citus is not installed in it; see docs/scaling.md.\n"
      const refused = { code: 1, stdout: "", stderr }
      assert.deepStrictEqual(yield* runCommand(["migrate", "--distribute"], { DATABASE_URL }), refused)
    })
  )

  it.live("of a database of 1.0.0 leaves what that version needs until it is finished", () =>
    Effect.gen(function* () {
      const DATABASE_URL = yield* freshDatabase
      yield* schema4(DATABASE_URL)
      const [first, again, last] = [
        yield* runCommand(["migrate"], { DATABASE_URL }),
        yield* runCommand(["migrate", "--json"], { DATABASE_URL }),
        yield* runCommand(["migrate", "--finish"], { DATABASE_URL })
      ]
      assert.match(first.stdout, /^Migrated: key_by_account, .*\nInstances of the version before can run beside/)
      assert.deepStrictEqual(onlyObject(again), { migrated: [], unfinished: true })
      assert.deepStrictEqual(last, { code: 0, stderr: "", stdout: "Migrated: drop_keys_by_id\n" })
    })
  )

  it.live("--finish is refused in one sentence while 1.0.0 is connected to the same database, and to no other", () =>
    Effect.gen(function* () {
      const [DATABASE_URL, other] = [yield* freshDatabase, yield* freshDatabase]
      yield* schema4(DATABASE_URL)
      const oldSession = (url: string) =>
        PgClient.make({ ...parseDatabaseUrl(Redacted.make(url)), ssl: false, applicationName: "byok" }).pipe(
          Effect.tap((sql) => sql`SELECT 1`),
          Effect.provide(Reactivity.layer)
        )
      const finish = runCommand(["migrate", "--finish"], { DATABASE_URL })
      const sql = yield* adminClient(DATABASE_URL)
      const stderr = "DATABASE_URL: byok 1.0.0 is connected, and needs what this would drop: stop it first.\n"
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* oldSession(DATABASE_URL)
          const before = yield* sql`SELECT * FROM effect_sql_migrations`
          assert.deepStrictEqual(yield* finish, { code: 1, stdout: "", stderr })
          assert.deepStrictEqual(yield* sql`SELECT * FROM effect_sql_migrations`, before)
          assert.strictEqual((yield* runCommand(["migrate"], { DATABASE_URL })).code, 0)
          assert.deepStrictEqual(yield* finish, { code: 1, stdout: "", stderr })
        })
      )
      yield* oldSession(other)
      const old = sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'byok'`
      yield* eventually(
        "the session has ended",
        Effect.map(old, ({ length }) => length === 0)
      )
      assert.deepStrictEqual(yield* finish, { code: 0, stderr: "", stdout: "Migrated: drop_keys_by_id\n" })
      yield* oldSession(DATABASE_URL)
      assert.deepStrictEqual(yield* finish, { code: 0, stderr: "", stdout: "The database is up to date.\n" })
    })
  )
})

const createAccount = ["account", "create", "--name", "n"]

const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* freshDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek"), PORT: "0" }
  return { settings, sql: yield* adminClient(DATABASE_URL) }
})

describe("a schema of another version than the program", () => {
  it.live("that is behind is refused in one sentence if BYOK_MIGRATE is check, except by migrate (F1)", () =>
    Effect.gen(function* () {
      const { settings, sql } = yield* begin
      const checking = { ...settings, BYOK_MIGRATE: "check" }
      const stderr = "DATABASE_URL: the schema is behind this version, and BYOK_MIGRATE is check: run `byok migrate`.\n"
      for (const command of [["serve"], createAccount, ["audit", "verify"], ["keyring", "status"]]) {
        assert.deepStrictEqual(yield* runCommand(command, checking), { code: 1, stdout: "", stderr })
      }
      assert.lengthOf(yield* sql`SELECT 1 FROM pg_tables WHERE schemaname = 'public'`, 0)
      assert.strictEqual((yield* runCommand(["migrate"], checking)).code, 0)
      assert.strictEqual((yield* runCommand(createAccount, checking)).code, 0)
    })
  )

  it.live(
    "that is newer is refused by commands in one sentence; serve warns and serves, so that an upgrade can be undone (F1)",
    () =>
      Effect.gen(function* () {
        const { settings, sql } = yield* begin
        yield* runCommand(["migrate"], settings)
        yield* sql`INSERT INTO effect_sql_migrations (migration_id, name) VALUES (${latest + 1}, 'of_tomorrow')`
        const newer = "DATABASE_URL: the schema is newer than this version of byok"
        const stderr = `${newer}: use the version that migrated it.\n`
        assert.deepStrictEqual(yield* runCommand(createAccount, settings), { code: 1, stdout: "", stderr })
        const service = yield* startService(settings)
        assert.include(service.stderr(), newer)
      })
  )
})
