import { readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { storesOn } from "../support/database/stores.ts"
import { minimal } from "../support/http/Bodies.ts"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { createAccount, onlyObject, textIn } from "../support/process/CommandLine.ts"
import { eventually } from "../support/process/eventually.ts"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { parsed, ringOf } from "../support/keys/keyrings.ts"
import { sealUnder } from "../support/keys/rotating.ts"
import { runShell } from "../support/process/runByok.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const page = readFileSync(join(import.meta.dirname, "../../docs/keys.md"), "utf8")
const [, section = ""] = /^## Rotate the keyring\n(.*?)^## /ms.exec(page) ?? []
const readyAt = (url: string) => Effect.promise(async () => (await fetch(`${url}/health/ready`)).text())
/** The commands of the four steps, as docs/keys.md gives them. */
const steps = /^```sh\n(.*?)^```/ms.exec(section)?.[1]?.split("\n\n") ?? []

/** A database, a directory with a keyring file, and a shell in it. */
const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* migratedDatabase
  const cwd = yield* temporaryDirectory
  const keyring = join(cwd, "keyring")
  writeFileSync(keyring, `${ringOf("old")}\n`, { mode: 0o600 })
  const settings = { DATABASE_URL, BYOK_KEYRING_FILE: keyring }
  return {
    settings,
    keyring,
    sql: yield* adminClient(DATABASE_URL),
    shell: (commands: string) => runShell(commands, { cwd, variables: settings }),
    ids: () =>
      readFileSync(keyring, "utf8")
        .trim()
        .split("\n")
        .map((line) => line.split(":")[0] ?? "")
  }
})

const rotations = /Keyring reloaded/g

/** Waits until a service has reloaded its keyring this many times. */
const reread = ({ stderr }: ServiceProcess, times: number) =>
  eventually(
    `the keyring was read again ${times} times`,
    Effect.sync(() => stderr().match(rotations)?.length === times)
  )

describe("byok keyring add, promote, rewrap, retire and status", () => {
  it.live("rotate the keyring of a running service by docs/keys.md's four steps as written (T10)", function* () {
    const { ids, keyring, settings, shell, sql } = yield* begin
    const service = yield* startService({ ...settings, LOG_LEVEL: "info" })
    const { pid, url } = service
    const key = textIn(yield* createAccount(settings), "management_key")
    assert.lengthOf(steps, 4)
    const typed = (step: number, replaced: Record<string, string> = {}) =>
      Effect.map(
        shell(
          Object.entries({ PID: String(pid), ...replaced }).reduce(
            (text, [name, value]) => text.replaceAll(name, value),
            steps[step - 1] ?? ""
          )
        ),
        ({ code, stderr, stdout }) => {
          assert.strictEqual(code, 0, stderr)
          return { stderr, stdout }
        }
      )
    const made: Array<string> = []
    const createSome = Effect.forEach([1, 2, 3], () =>
      Effect.map(createOver(url, key, minimal), (answer) => made.push(idIn(answer)))
    )
    const under = (kek_id: string) =>
      Effect.map(sql`SELECT 1 FROM credentials WHERE kek_id = ${kek_id}`, ({ length }) => length)

    yield* createSome
    yield* typed(1)
    const [first, added = ""] = ids()
    assert.strictEqual(first, "old")
    yield* reread(service, 1)
    yield* createSome
    assert.strictEqual(yield* under("old"), 6, "a pending key seals nothing")

    yield* typed(2, { "NEW-ID": added })
    assert.deepStrictEqual(ids(), [added, "old"])
    assert.strictEqual(statSync(keyring).mode & 0o777, 0o600)
    yield* reread(service, 2)
    yield* createSome
    assert.deepStrictEqual([yield* under("old"), yield* under(added)], [6, 3])

    const done = yield* typed(3)
    assert.strictEqual(done.stdout, `rewrapped  6\nleft       0\nunder      ${added}: 9\nunder      old: 0\n`)
    assert.strictEqual(done.stderr, "rewrapped 6 of 6 credentials, 0 failed\n")

    const retired = yield* typed(4, { "OLD-ID": "old" })
    const column = (kek_id: string) => kek_id.padEnd(added.length)
    assert.strictEqual(
      retired.stdout.replaceAll(/ 20\d\d-\d\d-\d\dT[\d:.]{12}Z/g, " then"),
      [
        `${added}  primary       credentials: 9, at most 8192 wraps so far, registered then`,
        `${column("old")}  decrypt-only  credentials: 0, at most 4096 wraps so far, registered then, may be retired`,
        "kek_id  old",
        "role    retired",
        ""
      ].join("\n")
    )
    assert.deepStrictEqual(ids(), [added])
    yield* reread(service, 3)
    yield* createSome
    assert.deepStrictEqual([yield* under("old"), yield* under(added)], [0, 12])
    for (const id of made) assert.strictEqual((yield* getOver(url, key, id)).status, 200)
    assert.strictEqual(yield* readyAt(url), '{"status":"ready"}')
    assert.notInclude(service.stderr(), readFileSync(keyring, "utf8").slice(added.length + 1, added.length + 12))
  })

  it.live("promote refuses a key until every instance has loaded it, naming those that have not (T10)", function* () {
    const { ids, settings } = yield* begin
    const services = yield* Effect.forEach([1, 2], () => startService({ ...settings, LOG_LEVEL: "info" }))
    const [one, other] = services
    assert(one !== undefined && other !== undefined)
    const added = textIn(onlyObject(yield* runCommand(["keyring", "add", "--json"], settings)), "kek_id")
    const promote = runCommand(["keyring", "promote", added], settings)
    const reload = (service: ServiceProcess) =>
      Effect.andThen(
        Effect.sync(() => process.kill(service.pid, "SIGHUP")),
        reread(service, 1)
      )
    const namesIn = ({ code, stderr }: Effect.Success<typeof promote>) => [
      code,
      services.map(({ pid }) => stderr.includes(`:${pid}`))
    ]
    assert.deepStrictEqual(namesIn(yield* promote), [1, [true, true]])
    yield* reload(one)
    assert.deepStrictEqual(namesIn(yield* promote), [1, [false, true]])
    assert.deepStrictEqual(ids(), ["old", added])
    yield* reload(other)
    assert.strictEqual((yield* promote).code, 0)
    assert.deepStrictEqual(ids(), [added, "old"])
  })

  it.live("retire refuses the primary key with exit code 1; rewrap --dry-run changes nothing", function* () {
    const { ids, settings, sql } = yield* begin
    const { BYOK_KEYRING_FILE: _, ...others } = settings
    const rotated = { ...others, BYOK_KEYRING: ringOf("new", "old") }
    const stores = yield* storesOn(settings.DATABASE_URL)
    yield* Effect.provide(sealUnder(ringOf("old"), 2), stores)

    const [refused, foretold] = yield* Effect.all(
      [
        runCommand(["keyring", "retire", "old"], settings),
        runCommand(["keyring", "rewrap", "--dry-run", "--json"], rotated)
      ],
      { concurrency: 2 }
    )
    const sentence = "Key old is the primary key: promote another one first.\n"
    assert.deepStrictEqual(refused, { code: 1, stdout: "", stderr: sentence })
    assert.deepStrictEqual(ids(), ["old"])
    const keys = [
      { kek_id: "new", credentials: 0 },
      { kek_id: "old", credentials: 2 }
    ]
    assert.deepStrictEqual(onlyObject(foretold), { rewrapped: 0, left: 2, failed: [], keys })
    assert.lengthOf(yield* sql`SELECT 1 FROM credentials WHERE kek_id = 'old'`, 2)
  })

  it.live("status --json prints when each key was registered", function* () {
    const { settings, sql } = yield* begin
    const { BYOK_KEYRING_FILE: _, ...others } = settings
    const status = runCommand(["keyring", "status", "--json"], { ...others, BYOK_KEYRING: ringOf("new", "old") })
    assert.strictEqual((yield* status).code, 0)
    yield* sql`
        UPDATE keks SET registered_at = '2026-03-01 12:30:15.25+00'`
    const known = { credentials: 0, wraps: 0, may_be_retired: false }
    assert.deepStrictEqual(onlyObject(yield* status), {
      keys: [
        { kek_id: "new", role: "primary", registered_at: "2026-03-01T12:30:15.250Z", ...known },
        { kek_id: "old", role: "pending", registered_at: "2026-03-01T12:30:15.250Z", ...known }
      ]
    })
  })

  it.live("rewrap exits with 1 if a credential does not open, and prints its id and the reason", function* () {
    const { settings, sql } = yield* begin
    const stores = yield* storesOn(settings.DATABASE_URL)
    const [one] = yield* Effect.provide(sealUnder(ringOf("old"), 2), stores)
    const { id } = one ?? assert.fail("nothing was made")
    yield* sql`UPDATE credentials SET disabled = NOT disabled WHERE id = ${id}`
    const { BYOK_KEYRING_FILE: _, ...others } = settings
    const rotated = { ...others, BYOK_KEYRING: ringOf("new", "old") }

    const failed = [{ id, reason: "the credential or its sealed key was altered" }]
    const told = yield* runCommand(["keyring", "rewrap", "--json"], rotated)
    const keys = [
      { kek_id: "new", credentials: 1 },
      { kek_id: "old", credentials: 1 }
    ]
    assert.strictEqual(told.stdout, `${JSON.stringify({ rewrapped: 1, left: 1, failed, keys })}\n`)
    const sentence = "Credentials that still name another key: 1.\n"
    assert.strictEqual(told.stderr, `rewrapped 1 of 2 credentials, 1 failed\n${sentence}`)
    assert.strictEqual(told.code, 1)

    const again = yield* runCommand(["keyring", "rewrap"], rotated)
    assert.strictEqual(
      again.stdout,
      `rewrapped  0\nleft       1\nunder      new: 1\nunder      old: 1\nfailed     ${id}: ${String(failed[0]?.reason)}\n`
    )
    assert.strictEqual(again.code, 1)
  })
})

const line = /^kek-\d{4}-\d\d-\d\d-[0-9a-f]{6}:[A-Za-z0-9+/]{43}=$/

describe("byok keyring generate (docs/keys.md, The keyring)", () => {
  it.live("prints one new key as id:base64, ready for a keyring file, without a database", function* () {
    const { code, stderr, stdout } = yield* runCommand(["keyring", "generate"])
    assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
    assert.match(stdout.trimEnd(), line)
    assert.strictEqual(parsed(stdout).byId.size, 1)

    const keyring = textIn(onlyObject(yield* runCommand(["keyring", "generate", "--json"])), "keyring")
    assert.match(keyring, line)
    assert.notStrictEqual(keyring.split(":")[1], stdout.trimEnd().split(":")[1])
  })
})
