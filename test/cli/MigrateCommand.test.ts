import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { freshDatabase } from "../support/database/freshDatabase.ts"
import { schema4 } from "../support/database/schema4.ts"
import { CommandLine, onlyObject } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"

layerLive(CommandLine.layer)("byok migrate", (it) => {
  it.effect("brings an empty database up to date, and says so when there is nothing to do", () =>
    Effect.gen(function* () {
      const { run, runJson } = yield* CommandLine
      assert.deepStrictEqual(yield* run("migrate"), {
        code: 0,
        stderr: "",
        stdout:
          "Migrated: create_tables, create_receipts, create_audit, retire_keks, key_by_account, validate_keys, credential_revisions, create_parkings, create_credential_use, kek_registration, parking_epochs, drop_keys_by_id\n"
      })
      assert.deepStrictEqual(yield* run("migrate"), { code: 0, stderr: "", stdout: "The database is up to date.\n" })
      assert.deepStrictEqual(yield* runJson("migrate"), { migrated: [], unfinished: false })
    })
  )

  it.effect("of a database of 1.0.0 leaves what that version needs until it is finished", () =>
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
})
