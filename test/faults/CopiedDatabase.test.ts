import { Effect } from "effect"
import { readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { disguised } from "../support/keys/keyrings.ts"
import { firstStart, newDirectory } from "../support/process/firstStart.ts"
import { runByok } from "../support/process/runByok.ts"
import { runProgram } from "../support/process/runNode.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { load, newLedger, untilAcked } from "../support/database/AckChecker.ts"
import { faultsAfterwards } from "./faultsAfterwards.ts"
import { assert, describe, it } from "../support/it.ts"

describe("a copy of the files of a stopped database", () => {
  it.live("opens every key with its keyring; with another keyring the service does not start (R15, T12)", function* () {
    const settings = yield* newDirectory
    const ledger = newLedger()
    const key = yield* Effect.scoped(
      Effect.gen(function* () {
        const { key, url } = yield* firstStart(settings)
        yield* Effect.scoped(Effect.andThen(load(url, key, ledger), untilAcked(ledger, 30)))
        return key
      })
    )
    const copy = yield* newDirectory
    const copied = yield* runProgram("cp", ["-pR", settings.BYOK_DATA_DIR, copy.BYOK_DATA_DIR])
    assert.deepStrictEqual(copied, { code: 0, stdout: "", stderr: "" })
    rmSync(settings.BYOK_DATA_DIR, { recursive: true })

    const check = Effect.gen(function* () {
      const { url } = yield* startService(copy)
      return yield* faultsAfterwards({ url, key, settings: copy }, ledger)
    })
    assert.deepStrictEqual(yield* Effect.scoped(check), [])

    const file = join(copy.BYOK_DATA_DIR, "keyring")
    const [id = ""] = readFileSync(file, "utf8").split(":")
    writeFileSync(file, disguised("impostor", id))
    assert.deepStrictEqual(yield* runByok(["serve"], { ...copy, PORT: "0" }), {
      code: 1,
      stdout: "",
      stderr: `BYOK_DATA_DIR/keyring: expected the keys that the database knows; found other bytes under ${id}.\n`
    })
  })
})
