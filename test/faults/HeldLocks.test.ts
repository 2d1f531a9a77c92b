import { Effect } from "effect"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { holdOpen } from "../support/database/transactions.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runByok } from "../support/process/runByok.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { assert, describe, it } from "../support/it.ts"

const readiness = (url: string) => Effect.promise(async () => (await fetch(`${url}/health/ready`)).status)

const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* migratedDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
  const account = onlyObject(yield* runByok(["account", "create", "--name", "n", "--json"], settings))
  return {
    settings,
    sql: yield* adminClient(DATABASE_URL),
    key: textIn(account, "management_key"),
    list: runByok(["api-key", "list", "--account", textIn(account, "account_id")], settings)
  }
})

describe("while another session locks tables", () => {
  it.live(
    "readiness does not wait for the table of migrations, even if that is locked exclusively (F1)",
    function* () {
      const { settings, sql } = yield* begin
      const { url } = yield* startService(settings)
      const release = yield* holdOpen(sql, "LOCK TABLE effect_sql_migrations IN ACCESS EXCLUSIVE MODE")
      // The lock is held until there is an answer: a statement that waited for it would fail at its deadline.
      assert.strictEqual(yield* readiness(url), 200)
      yield* release
    },
    60_000
  )
})
