import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { CommandLine } from "../support/process/CommandLine.ts"

layerLive(CommandLine.layer)("byok migrate", (it) => {
  it.effect("brings an empty database up to date, and says so when there is nothing to do", () =>
    Effect.gen(function* () {
      const { run, runJson } = yield* CommandLine
      assert.deepStrictEqual(yield* run("migrate"), {
        code: 0,
        stderr: "",
        stdout: "Migrated: create_tables, create_receipts, create_audit, retire_keks\n"
      })
      assert.deepStrictEqual(yield* run("migrate"), { code: 0, stderr: "", stdout: "The database is up to date.\n" })
      assert.deepStrictEqual(yield* runJson("migrate"), { migrated: [] })
    })
  )
})
