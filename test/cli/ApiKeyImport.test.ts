import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { sha256 } from "../support/keys/issuedKey.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { startService } from "../support/process/ServiceProcess.ts"

const id = "01935f6a-0000-7000-8000-000000000000"

layerLive(Layer.fresh(CommandLine.layer))("byok api-key import (D41)", (it) => {
  it.effect("makes a key of another form work, by its hash alone", () =>
    Effect.gen(function* () {
      const { databaseUrl, run, runJson } = yield* CommandLine
      const account_id = textIn(yield* runJson("account", "create", "--name", "Acme"), "account_id")
      const keys = { management: "sk-of-another-form", ordinary: "sk-of-another-form-too" }
      const flags = (key: string) => [sha256(key), "--account", account_id, "--name", "imported"]
      const ordinary = yield* runJson("api-key", "import", ...flags(keys.ordinary))
      assert.deepStrictEqual(ordinary, { hash: sha256(keys.ordinary), management: false })
      const { code, stderr, stdout } = yield* run("api-key", "import", ...flags(keys.management), "--management")
      assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
      assert.strictEqual(stdout, `hash        ${sha256(keys.management)}\nmanagement  true\n`)

      const { url } = yield* startService({ DATABASE_URL: databaseUrl, BYOK_KEYRING: ringOf("a") })
      const get = (key: string) =>
        Effect.promise(async () => {
          const { status } = await fetch(`${url}/api/v1/byok/${id}`, { headers: { authorization: `Bearer ${key}` } })
          return status
        })
      const statuses = yield* Effect.forEach([keys.management, keys.ordinary, "sk-never-imported"], get)
      assert.deepStrictEqual(statuses, [404, 403, 401])
    })
  )

  it.effect("refuses a hash that exists, revoked or not, and changes nothing", () =>
    Effect.gen(function* () {
      const { run, runJson } = yield* CommandLine
      const account = yield* runJson("account", "create", "--name", "Acme")
      const other = yield* runJson("account", "create", "--name", "Other")
      const hash = textIn(account, "management_key_hash")
      const list = runJson("api-key", "list", "--account", textIn(account, "account_id"))
      const refuse = Effect.gen(function* () {
        const before = yield* list
        for (const owner of [account, other]) {
          assert.deepStrictEqual(
            yield* run("api-key", "import", hash, "--account", textIn(owner, "account_id"), "--name", "n"),
            { code: 1, stdout: "", stderr: "There is an API key with this hash already.\n" }
          )
        }
        assert.deepStrictEqual(yield* list, before)
      })
      yield* refuse
      yield* run("api-key", "revoke", hash)
      yield* refuse
    })
  )
})
