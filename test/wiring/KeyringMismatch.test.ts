import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { storesOn } from "../support/database/stores.ts"
import { databaseContent } from "../support/keys/leakSearch.ts"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { disguised, ringOf } from "../support/keys/keyrings.ts"
import { rotationWith, sealUnder } from "../support/keys/rotating.ts"
import { runByok } from "../support/process/runByok.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const wrong = disguised("impostor", "kek-1")
const sentence = "expected the keys that the database knows; found other bytes under kek-1."

describe("wrong bytes under a known key id (T12)", () => {
  it.live(
    "the service ends with one sentence that names setting and id and with exit code 1, having written nothing",
    () =>
      Effect.gen(function* () {
        const DATABASE_URL = yield* migratedDatabase
        const sql = yield* adminClient(DATABASE_URL)
        yield* Effect.gen(function* () {
          yield* rotationWith(ringOf("kek-1"))
          yield* sealUnder(ringOf("kek-1"), 3)
        }).pipe(Effect.provide(yield* storesOn(DATABASE_URL)))
        const before = yield* databaseContent(sql)
        const file = join(yield* temporaryDirectory, "keyring")
        const ring = `${ringOf("kek-0")}\n${wrong}\n${ringOf("kek-2")}`
        writeFileSync(file, ring, { mode: 0o600 })

        for (const given of [{ BYOK_KEYRING: ring }, { BYOK_KEYRING_FILE: file }]) {
          const [setting] = Object.keys(given)
          const settings = { DATABASE_URL, PORT: "0", ...given }
          for (const refused of [
            yield* runByok(["serve"], settings),
            yield* runCommand(["keyring", "rewrap"], settings)
          ])
            assert.deepStrictEqual(refused, { code: 1, stdout: "", stderr: `${setting}: ${sentence}\n` })
        }
        assert.strictEqual(yield* databaseContent(sql), before)

        yield* startService({ DATABASE_URL, BYOK_KEYRING: ringOf("kek-0", "kek-1", "kek-2") })
        assert.notStrictEqual(yield* databaseContent(sql), before, "the right bytes are let in, and new keys recorded")
      })
  )
})
