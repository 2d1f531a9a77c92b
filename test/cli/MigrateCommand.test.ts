import { Effect } from "effect"
import { adminClient, freshDatabase, migratedDatabase } from "../support/database/freshDatabase.ts"
import { onlyObject } from "../support/process/CommandLine.ts"
import { eventually } from "../support/process/eventually.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { assert, describe, it } from "../support/it.ts"

describe("byok migrate", () => {
  it.live("migrates an empty database; run again, says that it is up to date", function* () {
    const DATABASE_URL = yield* freshDatabase
    const run = (...args: ReadonlyArray<string>) => runCommand(args, { DATABASE_URL })
    const { stdout, ...rest } = yield* run("migrate")
    assert.deepStrictEqual(rest, { code: 0, stderr: "" })
    assert.match(stdout, /^Migrated: schema_[0-9a-f]{8}\n$/)
    assert.deepStrictEqual(yield* run("migrate"), { code: 0, stderr: "", stdout: "The database is up to date.\n" })
    assert.deepStrictEqual(onlyObject(yield* run("migrate", "--json")), { migrated: [], restored: [] })
  })

  it.live("restores foreign keys lost by using Citus; until then, other commands refuse to run", function* () {
    const DATABASE_URL = yield* migratedDatabase
    const sql = yield* adminClient(DATABASE_URL)
    const keys = sql<{ table: string; conname: string; definition: string }>`
        SELECT conrelid::regclass::text AS table, conname, pg_get_constraintdef(oid) AS definition
        FROM pg_constraint WHERE contype = 'f' ORDER BY conname`
    const before = yield* keys
    assert.lengthOf(before, 7)
    for (const { conname, table } of before) yield* sql.unsafe(`ALTER TABLE ${table} DROP CONSTRAINT ${conname}`)
    const stderr = "DATABASE_URL: foreign keys are missing, as after the way back from Citus: run `byok migrate`.\n"
    const refused = { code: 1, stdout: "", stderr }
    assert.deepStrictEqual(yield* runCommand(["account", "list"], { DATABASE_URL }), refused)
    const { code, stdout } = yield* runCommand(["migrate"], { DATABASE_URL })
    assert.strictEqual(code, 0)
    const [, names = ""] = /^The database is up to date\.\nRestored the foreign keys (.*)\n$/.exec(stdout) ?? []
    assert.sameMembers(
      names.split(", "),
      before.map(({ conname }) => conname)
    )
    assert.deepStrictEqual(yield* keys, before)
    assert.strictEqual((yield* runCommand(["account", "list"], { DATABASE_URL })).code, 0)
  })

  it.live("--distribute refuses, in one sentence, a database without Citus", function* () {
    const DATABASE_URL = yield* migratedDatabase
    const stderr =
      "DATABASE_URL cannot be distributed: the extension citus is not installed in it; see docs/scaling.md.\n"
    const refused = { code: 1, stdout: "", stderr }
    assert.deepStrictEqual(yield* runCommand(["migrate", "--distribute"], { DATABASE_URL }), refused)
  })
})

const createAccount = ["account", "create", "--name", "n"]

const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* freshDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek"), PORT: "0" }
  return { settings, sql: yield* adminClient(DATABASE_URL) }
})

describe("the version check of the database schema", () => {
  it.live("refuses an older schema if BYOK_MIGRATE is check, except in byok migrate (F1)", function* () {
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

  it.live(
    "refuses a newer schema in commands, but only warns in serve, so that an upgrade can be undone (F1)",
    function* () {
      const { settings, sql } = yield* begin
      yield* runCommand(["migrate"], settings)
      yield* sql`INSERT INTO effect_sql_migrations (migration_id, name) VALUES (1000, 'of_tomorrow')`
      const newer = "DATABASE_URL: the schema is newer than this version of byok"
      const stderr = `${newer}: use the version that migrated it.\n`
      assert.deepStrictEqual(yield* runCommand(createAccount, settings), { code: 1, stdout: "", stderr })
      const service = yield* startService(settings)
      assert.include(service.stderr(), newer)
    }
  )

  it.live.each([
    [
      "another schema under the same number",
      "UPDATE effect_sql_migrations SET name = 'schema_00000000'",
      "the schema is that of another build of this version: use the build that migrated it, or an empty database.",
      "another build of this version migrated the database"
    ],
    [
      "a schema that lacks a table",
      "DROP TABLE idempotency_records",
      "tables that byok created are missing: restore a complete backup, or use an empty database.",
      "tables are missing from the database"
    ]
  ] as const)("refuses %s, and is not ready when it becomes one", function* ([, change, sentence, problem]) {
    const { settings, sql } = yield* begin
    yield* runCommand(["migrate"], settings)
    const service = yield* startService(settings)
    const ready = Effect.promise(async () => (await fetch(`${service.url}/health/ready`)).status)
    assert.strictEqual(yield* ready, 200, "control")
    yield* sql.unsafe(change)
    yield* eventually("the service is not ready", ready, (status) => status === 503)
    yield* eventually(
      "it says why",
      Effect.sync(() => service.stderr().includes(problem))
    )
    const stderr = `DATABASE_URL: ${sentence}\n`
    for (const command of [["serve"], ["migrate"], createAccount]) {
      assert.deepStrictEqual(yield* runCommand(command, settings), { code: 1, stdout: "", stderr })
    }
  })
})
