import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { AccountId, CredentialId } from "../../src/domain/Identifiers.ts"
import { adminClient, copyDatabase, migratedDatabase } from "../support/database/freshDatabase.ts"
import { storesOn } from "../support/database/stores.ts"
import { createOver, idIn } from "../support/http/callByok.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { keysOf, type Made, openedWith } from "../support/keys/rotating.ts"
import { createAccount, textIn } from "../support/process/CommandLine.ts"
import { eventually } from "../support/process/eventually.ts"
import { runByok } from "../support/process/runByok.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const page = readFileSync(join(import.meta.dirname, "../../docs/keys.md"), "utf8")
const sectionOf = (title: string) => new RegExp(`^## ${title}\\n(.*?)^## `, "ms").exec(page)?.[1] ?? ""
/** The commands of the rotation that the runbook asks for, without the signals to instances. */
const commands = Array.from(sectionOf("Rotate the keyring").matchAll(/^ *byok ([^#&\n]+)/gm), ([, args = ""]) =>
  args.trim()
)

const opensIn = (url: string, keyring: string, made: ReadonlyArray<Made>, claimed?: string) =>
  Effect.scoped(Effect.flatMap(storesOn(url), (stores) => Effect.provide(openedWith(keyring, made, claimed), stores)))

describe("the runbook that erases a key for good (docs/keys.md, L12)", () => {
  it.live(
    "leaves a keyring that opens the deleted key in no copy, and the other keys in a later copy",
    function* () {
      assert.include(sectionOf("Erase a key for good"), "2. [Rotate the keyring](#rotate-the-keyring)")
      const DATABASE_URL = yield* migratedDatabase
      const keyring = join(yield* temporaryDirectory, "keyring")
      writeFileSync(keyring, `${ringOf("old")}\n`, { mode: 0o600 })
      const settings = { DATABASE_URL, BYOK_KEYRING_FILE: keyring, LOG_LEVEL: "info" }
      const old = readFileSync(keyring, "utf8").trim()
      const account = yield* createAccount({ DATABASE_URL, BYOK_KEYRING_FILE: keyring })
      const token = textIn(account, "management_key")
      const made = yield* Effect.scoped(
        Effect.gen(function* () {
          const { url } = yield* startService(settings)
          return yield* Effect.forEach(["erased", "kept", "kept too"], (name) => {
            const key = `fake-key-0123456789-${name}`
            const account_id = AccountId.make(textIn(account, "account_id"))
            return Effect.map(createOver(url, token, { provider: "xai", key }), (answer): Made => ({
              account_id,
              id: CredentialId.make(idIn(answer)),
              key
            }))
          })
        })
      )
      const [erased, ...kept] = made
      if (erased === undefined) return assert.fail("nothing was made")
      const before = yield* copyDatabase(DATABASE_URL)

      const now = () => readFileSync(keyring, "utf8").trim()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const service = yield* startService(settings)
          const headers = { authorization: `Bearer ${token}` }
          const answer = yield* Effect.promise(() =>
            fetch(`${service.url}/api/v1/byok/${erased.id}`, { method: "DELETE", headers })
          )
          assert.strictEqual(answer.status, 200)
          assert.deepStrictEqual(
            commands.map((command) => command.replace(/ (NEW|OLD)-ID$/, "")),
            [
              "keyring add",
              "keyring promote",
              "keyring rewrap --rate 1000 --batch 500",
              "keyring status",
              "keyring retire"
            ]
          )
          let reloads = 0
          for (const command of commands) {
            const added = now().split("\n").at(-1)?.split(":")[0] ?? ""
            const args = command.replace("NEW-ID", added).replace("OLD-ID", "old").split(" ")
            const { code, stderr } = yield* runByok(args, { DATABASE_URL, BYOK_KEYRING_FILE: keyring })
            assert.strictEqual(code, 0, stderr)
            if (/^keyring (rewrap|status)/.test(command)) continue
            yield* service.signal("SIGHUP")
            reloads += 1
            yield* eventually(
              "the keyring was read again",
              Effect.sync(() => service.stderr().match(/Keyring reloaded/g)?.length === reloads)
            )
          }
        })
      )
      assert.notInclude(now(), old, "the old line is gone")
      const [kek_id = ""] = now().split(":")
      const after = yield* copyDatabase(DATABASE_URL)

      assert.deepStrictEqual(yield* opensIn(after, now(), kept), keysOf(kept))
      assert.deepStrictEqual(yield* opensIn(before, old, made), keysOf(made), "control: with the old line")
      const unknown = made.map(() => "UnknownKeyId")
      assert.deepStrictEqual(yield* opensIn(before, now(), made), unknown)
      const altered = made.map(() => "AuthenticationFailed")
      assert.deepStrictEqual(yield* opensIn(before, now(), made, kek_id), altered)

      const [row] = yield* Effect.scoped(
        Effect.flatMap(
          adminClient(before),
          (sql) =>
            sql<{ row: string }>`SELECT row_to_json(c)::text AS row FROM credentials AS c WHERE id = ${erased.id}`
        )
      )
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sql = yield* adminClient(after)
          assert.lengthOf(yield* sql`SELECT 1 FROM credentials WHERE id = ${erased.id}`, 0)
          const restore = sql`
              INSERT INTO credentials SELECT * FROM json_populate_record(NULL::credentials, ${row?.row ?? ""}::json)`
          assert.include(JSON.stringify(yield* Effect.exit(restore)), "credentials_kek_retired")
          yield* sql`ALTER TABLE credentials DROP CONSTRAINT credentials_kek_retired`
          yield* restore
        })
      )
      assert.deepStrictEqual(yield* opensIn(after, now(), made), ["UnknownKeyId", ...keysOf(kept)])
    },
    120_000
  )
})
