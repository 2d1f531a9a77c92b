import { Effect } from "effect"
import { join } from "node:path"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runByok } from "../support/process/runByok.ts"
import { isRunning, isShutDown, postmasterOf, startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

describe("byok commands on the embedded database", () => {
  it.live("work with and without a running service, which sees their changes at once (D40, D42)", function* () {
    const settings = { BYOK_DATA_DIR: join(yield* temporaryDirectory, "data"), LOG_LEVEL: "warn" }
    const byok = (...args: ReadonlyArray<string>) => Effect.map(runByok([...args, "--json"], settings), onlyObject)

    yield* Effect.scoped(startService(settings))
    const { management_key_hash: hash, ...first } = yield* byok("account", "create", "--name", "Acme")
    const key = textIn(first, "management_key")
    assert.isTrue(isShutDown(settings.BYOK_DATA_DIR), "a command that found no service leaves no database running")

    const { stdout, url } = yield* startService(settings)
    assert.notInclude(stdout(), "byok_mk_", "there is an account already, so none is made up")
    const created = yield* createOver(url, key, { provider: "groq", key: "fake-key-fake-key" })
    assert.strictEqual(created.status, 201)

    const { key: issued } = yield* byok(
      "api-key",
      "issue",
      "--account",
      textIn(first, "account_id"),
      "--name",
      "n",
      "--management"
    )
    assert.deepStrictEqual(yield* getOver(url, String(issued), idIn(created)), { status: 200, body: created.body })

    yield* byok("api-key", "revoke", String(hash))
    assert.strictEqual((yield* getOver(url, key, idIn(created))).status, 401)

    assert.isTrue(isRunning(postmasterOf(settings.BYOK_DATA_DIR)), "a command does not stop the service's database")
    assert.strictEqual((yield* getOver(url, String(issued), idIn(created))).status, 200)
  })
})
