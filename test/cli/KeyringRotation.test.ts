import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { delimiter, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { createOver, getOver, idIn } from "../support/callByok.ts"
import { onlyObject, textIn } from "../support/CommandLine.ts"
import { adminClient, freshDatabase } from "../support/freshDatabase.ts"
import { ringOf } from "../support/rotating.ts"
import { byokScript, nowhere, runByok } from "../support/runByok.ts"
import { environment, runProgram } from "../support/runNode.ts"
import { startService } from "../support/ServiceProcess.ts"
import { temporaryDirectory } from "../support/temporaryDirectory.ts"

const page = readFileSync(join(import.meta.dirname, "../../SECURITY.md"), "utf8")
const [, section = ""] = /^## Rotating the keyring\n(.*?)^## /ms.exec(page) ?? []
/** The commands of the four steps, as the page tells to type them. */
const steps = Array.from(section.matchAll(/^ *```sh\n(.*?)^ *```/gms), ([, commands = ""]) => commands)

/** A database, a directory with a keyring file, and a shell in it that knows `byok`. */
const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* freshDatabase
  const cwd = yield* temporaryDirectory
  const keyring = join(cwd, "keyring")
  const program = join(cwd, "byok")
  writeFileSync(keyring, `${ringOf("old")}\n`, { mode: 0o600 })
  writeFileSync(program, `#!/bin/sh\nexec '${process.execPath}' '${byokScript}' "$@"\n`)
  chmodSync(program, 0o755)
  const settings = { DATABASE_URL, BYOK_KEYRING_FILE: keyring }
  const variables = { ...nowhere, ...settings, PATH: `${cwd}${delimiter}${environment.PATH}` }
  return {
    settings,
    keyring,
    sql: yield* adminClient(DATABASE_URL),
    shell: (commands: string) => runProgram("/bin/sh", ["-e", "-c", commands], { cwd, variables }),
    ids: () =>
      readFileSync(keyring, "utf8")
        .trim()
        .split("\n")
        .map((line) => line.split(":")[0] ?? "")
  }
})

const readyAt = (url: string) => Effect.promise(async () => (await fetch(`${url}/health/ready`)).text())

const credential = { provider: "groq", key: "fake-key-fake-key" }

describe("byok keyring rewrap and status", () => {
  it.live("the four steps of SECURITY.md, as they are typed, beside the service (T10)", () =>
    Effect.gen(function* () {
      const { ids, keyring, settings, shell, sql } = yield* begin
      const account = onlyObject(yield* runByok(["account", "create", "--name", "n", "--json"], settings))
      const key = textIn(account, "management_key")
      const [add = "", promote = "", rewrap = "", retire = ""] = steps
      assert.lengthOf(steps, 4)
      const made: Array<string> = []
      const createSome = (url: string) =>
        Effect.forEach([1, 2, 3], () =>
          Effect.map(createOver(url, key, credential), (answer) => made.push(idIn(answer)))
        )

      yield* Effect.scoped(Effect.flatMap(startService(settings), ({ url }) => createSome(url)))
      assert.strictEqual((yield* shell(add)).code, 0)
      const [, added = ""] = ids()
      assert.strictEqual((yield* shell(promote)).code, 0)
      assert.deepStrictEqual(ids(), [added, "old"])
      assert.strictEqual(statSync(keyring).mode & 0o777, 0o600)

      const { url } = yield* startService(settings)
      yield* createSome(url)
      const done = yield* shell(rewrap)
      assert.deepStrictEqual([done.code, done.stdout], [0, "rewrapped  3\nleft       0\n"])
      assert.strictEqual(done.stderr, "rewrapped 3 of 3 credentials, 0 failed\n")
      for (const id of made) assert.strictEqual((yield* getOver(url, key, id)).status, 200)

      const retired = yield* shell(retire.replaceAll("OLD-ID", "old"))
      assert.strictEqual(retired.code, 0)
      const width = added.length
      assert.strictEqual(
        retired.stdout,
        `${added}  primary  6 credentials, 8192 wraps\n${"old".padEnd(width)}  opens    0 credentials, 4096 wraps, may be retired\n`
      )
      assert.deepStrictEqual(ids(), [added])
      assert.lengthOf(yield* sql`SELECT 1 FROM credentials WHERE kek_id <> ${added}`, 0)

      const after = yield* startService(settings)
      assert.strictEqual(yield* readyAt(after.url), '{"status":"ready"}')
      for (const id of made) assert.strictEqual((yield* getOver(after.url, key, id)).status, 200)

      const nothing = yield* runByok(["keyring", "rewrap", "--json"], settings)
      assert.deepStrictEqual(onlyObject(nothing), { rewrapped: 0, left: 0, failed: [] })
      const status = onlyObject(yield* runByok(["keyring", "status", "--json"], settings))
      assert.deepStrictEqual(status, {
        keys: [
          { kek_id: added, role: "primary", credentials: 6, wraps: 8192, may_be_retired: false },
          { kek_id: "old", role: "retired", credentials: 0, wraps: 4096, may_be_retired: false }
        ]
      })
    })
  )

  it.live("what cannot be opened is told by id and reason, with exit code 1", () =>
    Effect.gen(function* () {
      const { settings, sql } = yield* begin
      const account = onlyObject(yield* runByok(["account", "create", "--name", "n", "--json"], settings))
      const { url } = yield* startService(settings)
      const answer = yield* createOver(url, textIn(account, "management_key"), credential)
      yield* createOver(url, textIn(account, "management_key"), credential)
      const id = idIn(answer)
      yield* sql`UPDATE credentials SET disabled = true WHERE id = ${id}`
      const { BYOK_KEYRING_FILE: _, ...others } = settings
      const rotated = { ...others, BYOK_KEYRING: ringOf("new", "old") }

      const failed = [{ id, reason: "the credential or its wrapped key was altered" }]
      const told = yield* runByok(["keyring", "rewrap", "--json"], rotated)
      assert.strictEqual(told.stdout, `${JSON.stringify({ rewrapped: 1, left: 1, failed })}\n`)
      const sentence = "Credentials that still name another key: 1.\n"
      assert.strictEqual(told.stderr, `rewrapped 1 of 2 credentials, 1 failed\n${sentence}`)
      assert.strictEqual(told.code, 1)

      const again = yield* runByok(["keyring", "rewrap"], rotated)
      assert.strictEqual(again.stdout, `rewrapped  0\nleft       1\nfailed     ${id}: ${String(failed[0]?.reason)}\n`)
      assert.strictEqual(again.code, 1)
    })
  )

  it.live("a rate that is no whole number from 1 is wrong usage", () =>
    Effect.gen(function* () {
      for (const rate of ["0", "1.5", "fast", ""]) {
        const { code, stderr, stdout } = yield* runByok(["keyring", "rewrap", `--rate=${rate}`])
        assert.deepStrictEqual({ code, stdout }, { code: 2, stdout: "" })
        assert.strictEqual(stderr, "--rate must be a whole number from 1 to 1000000.\n")
      }
    })
  )
})
