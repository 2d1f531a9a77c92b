import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { migratedDatabase } from "../support/database/freshDatabase.ts"
import { createOver } from "../support/http/callByok.ts"
import { listen } from "../support/database/listen.ts"
import { faultOf } from "../support/keys/issuedKey.ts"
import { textIn } from "../support/process/CommandLine.ts"
import { newDirectory } from "../support/process/firstStart.ts"
import { byokScript, runByok } from "../support/process/runByok.ts"
import { type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

const startJson = (variables: Record<string, string>) => startService(variables, [byokScript, "serve", "--json"])

/** The one object that a service has printed when it has ended. */
const printedBy = Effect.fnUntraced(function* ({ ended, signal, stdout }: ServiceProcess) {
  yield* signal("SIGTERM")
  assert.strictEqual(yield* ended, 0)
  assert.match(stdout(), /^\{[^\n]*\}\n$/, "one line, and nothing around it")
  return JSON.parse(stdout()) as Record<string, unknown>
})

describe("serve --json (F16)", () => {
  it.live("prints one object: where it listens and, on the first start only, the account and its key", () =>
    Effect.gen(function* () {
      const settings = yield* newDirectory
      const first = yield* startJson(settings)
      const management_key = textIn(JSON.parse(first.stdout()) as Record<string, unknown>, "management_key")
      assert.isUndefined(faultOf(management_key, "mk"))
      const answer = yield* createOver(first.url, management_key, { provider: "groq", key: "fake-key-fake-key" })
      assert.strictEqual(answer.status, 201)
      const { account_id, workspace_id, ...listening } = yield* printedBy(first)
      assert.match(String(account_id), uuid)
      assert.include(answer.body, `"workspace_id":"${String(workspace_id)}"`)
      const { port } = new URL(first.url)
      const where = { address: "127.0.0.1", port: Number(port), url: first.url, pid: first.pid }
      assert.deepStrictEqual(listening, { ...where, management_key })

      const second = yield* startJson(settings)
      assert.sameMembers(Object.keys(yield* printedBy(second)), ["address", "port", "url", "pid"])
    }).pipe(Effect.scoped)
  )

  it.live("an address without a port that is free is reported with the setting to change", () =>
    Effect.gen(function* () {
      const port = yield* listen(() => undefined)
      const [DATABASE_URL, BYOK_KEYRING] = [yield* migratedDatabase, generateKeyring(new Date())]
      assert.deepStrictEqual(yield* runByok(["serve"], { DATABASE_URL, BYOK_KEYRING, PORT: String(port) }), {
        code: 1,
        stdout: "",
        stderr: `Port ${port} on 127.0.0.1 is in use: set PORT, e.g. PORT=${port + 1}.\n`
      })
    }).pipe(Effect.scoped)
  )
})
