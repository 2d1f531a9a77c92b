import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { adminClient, freshDatabase, migratedDatabase } from "../support/database/freshDatabase.ts"
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
        stdout: "Migrated: schema\n"
      })
      assert.deepStrictEqual(yield* run("migrate"), { code: 0, stderr: "", stdout: "The database is up to date.\n" })
      assert.deepStrictEqual(onlyObject(yield* run("migrate", "--json")), { migrated: [] })
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
