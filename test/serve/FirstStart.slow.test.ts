import { Effect } from "effect"
import { statSync } from "node:fs"
import { join } from "node:path"
import { textIn } from "../support/process/CommandLine.ts"
import { assert, describe, it } from "../support/it.ts"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { firstStart, newDirectory } from "../support/process/firstStart.ts"
import { faultOf } from "../support/keys/issuedKey.ts"
import { byokScript } from "../support/process/runByok.ts"
import { runProgram } from "../support/process/runNode.ts"
import { type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"

const paste = (command: string) =>
  Effect.map(runProgram("/bin/sh", ["-c", command]), ({ stdout }) => {
    const [head = "", body = ""] = stdout.split("\r\n\r\n")
    return { status: Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1]), body }
  })

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

const startJson = (variables: Record<string, string>) => startService(variables, [byokScript, "serve", "--json"])

/** The one object that a service has printed when it has ended. */
const printedBy = Effect.fnUntraced(function* ({ ended, signal, stdout }: ServiceProcess) {
  yield* signal("SIGTERM")
  assert.strictEqual(yield* ended, 0)
  assert.match(stdout(), /^\{[^\n]*\}\n$/, "one line, and nothing around it")
  return JSON.parse(stdout()) as Record<string, unknown>
})

describe("the first start on an empty directory", () => {
  it.live(
    "prints the address, a management key and two curl commands that work as printed (section 4, D1, D41)",
    function* () {
      const settings = yield* newDirectory
      const service = yield* firstStart(settings)
      assert.strictEqual(service.keyCount, 1)
      assert.isUndefined(faultOf(service.key, "mk"))
      assert.include(service.create, `${service.url}/api/v1/byok `)
      const [, link = "", token = ""] = /(http\S+\/keys)#(byok_ln_\w+)/.exec(service.stdout()) ?? []
      assert.strictEqual(link, `${service.url}/keys`)
      const [page, module, about] = yield* Effect.promise(() =>
        Promise.all([
          fetch(link),
          fetch(`${link}/hpke.js`),
          fetch(`${service.url}/api/links/v1/link`, { headers: { authorization: `Bearer ${token}` } })
        ])
      )
      assert.deepStrictEqual([page.status, module.status, about.status], [200, 200, 200], "also of the bundled program")

      const created = yield* paste(service.create)
      assert.strictEqual(created.status, 201)
      assert.include(created.body, '"label":"sk-...AbCd"')
      assert.deepStrictEqual(yield* paste(service.get.replace("/ID ", `/${idIn(created)} `)), {
        status: 200,
        body: created.body
      })
      assert.strictEqual(statSync(join(settings.BYOK_DATA_DIR, "keyring")).mode & 0o777, 0o600)

      yield* service.signal("SIGTERM")
      assert.strictEqual(yield* service.ended, 0)
      const second = yield* startService(settings)
      assert.deepStrictEqual(yield* getOver(second.url, service.key, idIn(created)), {
        status: 200,
        body: created.body
      })
      assert.strictEqual(
        second.stdout(),
        `byok listens on ${second.url} as process ${second.pid}; its documentation is at ${second.url}/docs\n`
      )
      assert.match(service.stderr(), /^\[.*\] INFO .*: Preparing the embedded database, which takes a few seconds\n$/)
      assert.strictEqual(second.stderr(), "")
    }
  )
})

describe("serve --json (F16)", () => {
  it.live("prints one JSON object: the address and, on the first start only, account and key", function* () {
    const settings = yield* newDirectory
    const first = yield* startJson(settings)
    const management_key = textIn(JSON.parse(first.stdout()) as Record<string, unknown>, "management_key")
    assert.isUndefined(faultOf(management_key, "mk"))
    const answer = yield* createOver(first.url, management_key, { provider: "groq", key: "fake-key-fake-key" })
    assert.strictEqual(answer.status, 201)
    const { account_id, manage_url, workspace_id, ...listening } = yield* printedBy(first)
    assert.match(String(manage_url), new RegExp(`^${first.url}/keys#byok_ln_\\w{49}$`))
    assert.match(String(account_id), uuid)
    assert.include(answer.body, `"workspace_id":"${String(workspace_id)}"`)
    const { port } = new URL(first.url)
    const where = { address: "127.0.0.1", port: Number(port), url: first.url, pid: first.pid }
    assert.deepStrictEqual(listening, { ...where, management_key })

    const second = yield* startJson(settings)
    assert.sameMembers(Object.keys(yield* printedBy(second)), ["address", "port", "url", "pid"])
  })
})
