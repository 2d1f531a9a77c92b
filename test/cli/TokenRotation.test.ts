import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { minimal } from "../support/http/Bodies.ts"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { createAccount, onlyObject, textIn } from "../support/process/CommandLine.ts"
import { databaseContent } from "../support/keys/leakSearch.ts"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { addKeys, addToken, pin, softHsm, withoutSoftHsm } from "../support/keys/SoftHsm.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const begin = Effect.gen(function* () {
  const hsm = yield* softHsm
  yield* addToken(hsm, "byok", { id: "token-1" }, { id: "token-2" })
  const DATABASE_URL = yield* migratedDatabase
  const pinFile = join(yield* temporaryDirectory, "pin")
  writeFileSync(pinFile, `${pin}\n`, { mode: 0o600 })
  return {
    hsm,
    sql: yield* adminClient(DATABASE_URL),
    database: { DATABASE_URL },
    token: (...ids: ReadonlyArray<string>) => ({
      DATABASE_URL,
      SOFTHSM2_CONF: hsm.conf,
      BYOK_PKCS11_MODULE: hsm.module,
      BYOK_PKCS11_TOKEN: "byok",
      BYOK_PKCS11_PIN_FILE: pinFile,
      BYOK_PKCS11_KEYS: ids.join(","),
      BYOK_PKCS11_DEADLINE: "20 seconds"
    })
  }
})

describe.skipIf(withoutSoftHsm !== undefined)(
  `byok with keys on a PKCS#11 token${withoutSoftHsm === undefined ? "" : ` (skipped: ${withoutSoftHsm})`}`,
  () => {
    it.live("rewraps credentials from a keyring to a token, and from one token key to another (T10)", function* () {
      const { database, sql, token } = yield* begin
      const account = yield* createAccount(database)
      const key = textIn(account, "management_key")
      const made: Array<string> = []
      const createdUnder = (settings: Record<string, string>) =>
        Effect.scoped(
          Effect.gen(function* () {
            const { stderr, url } = yield* startService(settings)
            made.push(idIn(yield* createOver(url, key, minimal)))
            for (const id of made) assert.strictEqual((yield* getOver(url, key, id)).status, 200)
            const ready = yield* Effect.promise(async () => (await fetch(`${url}/health/ready`)).text())
            assert.strictEqual(ready, '{"status":"ready"}')
            assert.notInclude(stderr(), pin)
          })
        )
      const rewrap = (settings: Record<string, string>) =>
        Effect.map(runCommand(["keyring", "rewrap", "--json"], settings), (finished) => {
          const { failed, left, rewrapped } = onlyObject({ ...finished, stderr: "" })
          return { failed, left, rewrapped }
        })

      yield* createdUnder({ ...database, BYOK_KEYRING: ringOf("old") })
      const beside = { ...token("token-1"), BYOK_KEYRING: ringOf("old") }
      assert.deepStrictEqual(yield* rewrap(beside), { rewrapped: 1, left: 0, failed: [] })
      const status = yield* runCommand(["keyring", "status"], beside)
      assert.strictEqual(status.code, 0)
      assert.match(
        status.stdout,
        /^token-1 +primary +credentials: 1, at most 4096 wraps so far, registered \S+Z\nold +decrypt-only +credentials: 0, at most 4096 wraps so far, registered \S+Z, may be retired\n$/
      )

      const rotated = token("token-2", "token-1")
      yield* createdUnder(rotated)
      assert.deepStrictEqual(yield* rewrap(rotated), { rewrapped: 1, left: 0, failed: [] })
      assert.lengthOf(yield* sql`SELECT 1 FROM credentials WHERE kek_id <> 'token-2'`, 0)
    })

    it.live("reports each wrong token setting by name in one sentence, and writes nothing (T12)", function* () {
      const { hsm, sql, token } = yield* begin
      const status = (settings: Record<string, string>) => runCommand(["keyring", "status"], settings)
      assert.strictEqual((yield* status(token("token-1"))).code, 0)
      const before = yield* databaseContent(sql)
      const { BYOK_PKCS11_TOKEN: _, ...withoutLabel } = token("token-1")
      const { BYOK_PKCS11_PIN_FILE: __, ...withoutPin } = token("token-1")
      yield* addKeys(hsm, "byok", { id: "token-1", remove: true }, { id: "token-1" })
      const expected: ReadonlyArray<readonly [Record<string, string>, string]> = [
        [withoutLabel, "BYOK_PKCS11_TOKEN must be set when keys are on a PKCS#11 token."],
        [withoutPin, "BYOK_PKCS11_PIN_FILE or BYOK_PKCS11_PIN must be set when keys are on a PKCS#11 token."],
        [
          { ...withoutPin, BYOK_PKCS11_PIN: "canary" },
          "BYOK_PKCS11_PIN: expected the PIN of the token's user; found CKR_PIN_INCORRECT."
        ],
        [
          { ...token("token-2"), BYOK_KEYRING: ringOf("token-2") },
          "BYOK_KEYRING: expected ids that are not in BYOK_PKCS11_KEYS; found token-2 in both."
        ],
        [
          token("token-2", "token-1"),
          "BYOK_PKCS11_KEYS: expected the keys that the database knows; found other bytes under token-1."
        ]
      ]
      for (const [settings, sentence] of expected) {
        assert.deepStrictEqual(yield* status(settings), { code: 1, stdout: "", stderr: `${sentence}\n` })
      }
      assert.strictEqual(yield* databaseContent(sql), before)
    })
  }
)
