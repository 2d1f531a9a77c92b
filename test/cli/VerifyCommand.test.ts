import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { createAccount, onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { assert, it } from "../support/it.ts"

const key = "sk-Jq8vXw2RkTz5-Yb7NcLm4Hd9Gf3-Ps6A"

it.live("byok verify opens every key of all accounts, shows none, and fails if one does not open (T1)", function* () {
  const DATABASE_URL = yield* migratedDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
  const ids: Array<string> = []
  for (const provider of ["openai", "groq", "xai"]) {
    const account_id = textIn(yield* createAccount(settings), "account_id")
    const created = yield* runCommand(
      ["credential", "create", "--account", account_id, "--provider", provider, "--json"],
      settings,
      key
    )
    ids.push(textIn(onlyObject(created), "id"))
  }
  const whole = yield* runCommand(["verify"], settings)
  assert.deepStrictEqual([whole.code, whole.stdout], [0, "opened    3 of 3 keys\n"])

  const sql = yield* adminClient(DATABASE_URL)
  yield* sql`UPDATE credentials SET allowed_models = ARRAY['a/model'] WHERE id = ${ids[1]}`
  const broken = yield* runCommand(["verify"], settings)
  assert.strictEqual(broken.code, 1)
  assert.match(broken.stdout, new RegExp(`^opened    2 of 3 keys\nunopened  ${ids[1]}  account: [-0-9a-f]{36}: .+\n$`))
  assert.match(broken.stderr, /\nKeys that did not open: 1\.\n$/)

  const foreign = yield* runCommand(["verify", "--json"], { DATABASE_URL, BYOK_KEYRING: ringOf("another") })
  assert.deepInclude(JSON.parse(foreign.stdout), { searched: 3, opened: 0, unopened_total: 3 })
  assert.strictEqual(foreign.code, 1)
  for (const { stderr, stdout } of [whole, broken, foreign]) assert.notInclude(stdout + stderr, key.slice(0, 9))
})
