import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Fiber } from "effect"
import type { SqlClient } from "effect/sql"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { leakOf } from "../support/keys/leakSearch.ts"
import { createAccount, textIn } from "../support/process/CommandLine.ts"
import { eventually } from "../support/process/eventually.ts"
import { runByok, runShell } from "../support/process/runByok.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const page = readFileSync(join(import.meta.dirname, "../../docs/commands.md"), "utf8")
/** The command in docs/commands.md that converts keys.csv. */
const [, conversion = ""] = /^```sh\n([^`]*keys\.csv[^`]*)^```/ms.exec(page) ?? []
const withoutJq = spawnSync("jq", ["--version"]).error !== undefined

interface Printed {
  readonly line: number
  readonly id?: string
  readonly label?: string
  readonly replayed?: boolean
  readonly issues?: ReadonlyArray<{ readonly path: ReadonlyArray<string>; readonly message: string }>
}

const printed = (stdout: string): ReadonlyArray<Printed> =>
  stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Printed)

/** An account on a database of its own, and a file to import. */
const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* migratedDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
  const made = yield* createAccount(settings)
  const account_id = textIn(made, "account_id")
  const directory = yield* temporaryDirectory
  const sql = yield* adminClient(DATABASE_URL)
  return {
    settings,
    account_id,
    sql,
    directory,
    write: (name: string, content: string, mode = 0o600) => {
      const file = join(directory, name)
      writeFileSync(file, content)
      chmodSync(file, mode)
      return file
    },
    importFrom: (file: string, ...args: ReadonlyArray<string>) =>
      runCommand(["credential", "import", file, "--account", account_id, ...args], { ...settings, LOG_LEVEL: "trace" })
  }
})

const countIn = (sql: SqlClient.SqlClient) =>
  Effect.map(sql<{ count: number }>`SELECT count(*)::int AS count FROM credentials`, ([row]) => row?.count ?? -1)

const keyOf = (number: number) => `fake-key-${String(number).padStart(8, "0")}-${"k".repeat(16)}`
const linesOf = (count: number) =>
  Array.from({ length: count }, (_, number) => `${JSON.stringify({ provider: "groq", key: keyOf(number) })}\n`).join("")

describe("byok credential import", () => {
  it.live("prints a result for each line, and a second run adds only the corrected lines", function* () {
    const { importFrom, sql, write } = yield* begin
    const good = [
      '{"provider":"openai","key":"sk-0123456789-0123456789-AbCd","name":"one"}',
      '{"provider":"groq","key":"gsk-0123456789-0123456789-AbCd","disabled":true}'
    ]
    const file = write("keys.jsonl", [good[0], "", '{"provider":"nope","key":"x"}', "{", good[1]].join("\n"))

    const dry = yield* importFrom(file, "--dry-run")
    assert.deepStrictEqual([dry.code, dry.stderr], [1, "Lines were refused. Valid 2, refused 2.\n"])
    assert.deepStrictEqual(
      printed(dry.stdout).map(({ issues = [], line }) => [line, issues.length]),
      [
        [3, 1],
        [4, 1]
      ]
    )
    assert.strictEqual(yield* countIn(sql), 0, "a dry run stores nothing")
    assert.isFalse(existsSync(`${file}.journal`), "a dry run makes no journal")

    const first = yield* importFrom(file)
    assert.deepStrictEqual(
      [first.code, first.stderr],
      [1, "Lines were refused. Imported 2, imported before 0, refused 2.\n"]
    )
    const results = printed(first.stdout)
    assert.deepStrictEqual(
      results.map(({ label, line, replayed }) => [line, label, replayed]),
      [
        [1, "sk-...AbCd", false],
        [3, undefined, undefined],
        [4, undefined, undefined],
        [5, "gsk...AbCd", false]
      ]
    )
    assert.deepStrictEqual(results[1]?.issues, [{ path: ["provider"], message: "must be a known provider slug" }])
    assert.deepStrictEqual(results[2]?.issues, [{ path: [], message: "must be valid JSON" }])
    assert.strictEqual(statSync(`${file}.journal`).mode & 0o777, 0o600)

    write("keys.jsonl", [good[0], '{"provider":"xai","key":"xai-0123456789-0123456789"}', good[1]].join("\n"))
    const second = yield* importFrom(file)
    assert.deepStrictEqual([second.code, second.stderr], [0, "Imported 1, imported before 2, refused 0.\n"])
    const [one, two, three] = printed(second.stdout)
    assert.deepStrictEqual([one?.id, one?.replayed], [results[0]?.id, true])
    assert.isFalse(two?.replayed)
    assert.deepStrictEqual([three?.id, three?.replayed], [results[3]?.id, true])
    assert.strictEqual(yield* countIn(sql), 3)

    const creates = (yield* eventsIn(sql)).filter(({ action }) => action === "credential.create")
    assert.lengthOf(creates, 3)
    for (const { actor } of creates) assert.strictEqual(actor.kind, "cli")
  })

  it.live("--dry-run refuses records beyond MAX_CREDENTIALS, counting repeated records once", function* () {
    const { account_id, settings, sql, write } = yield* begin
    const run = (file: string, ...flags: ReadonlyArray<string>) =>
      runCommand(["credential", "import", file, "--account", account_id, ...flags], {
        ...settings,
        MAX_CREDENTIALS: "3"
      })
    const openai = '{"provider":"openai","key":"sk-0123456789-0123456789-AbCd"}\n'
    const full = [{ path: ["provider"], message: "must have at most 3 credentials in a workspace" }]
    const refused = (stdout: string) => printed(stdout).flatMap(({ issues = [] }) => (issues.length > 0 ? issues : []))

    const tooMany = yield* run(write("first.jsonl", linesOf(5)), "--dry-run")
    assert.deepStrictEqual([tooMany.code, tooMany.stderr], [1, "Lines were refused. Valid 3, refused 2.\n"])
    assert.deepStrictEqual(refused(tooMany.stdout), [...full, ...full])
    assert.strictEqual((yield* run(write("first.jsonl", linesOf(3)))).code, 0)
    const repeated = yield* run(write("first.jsonl", linesOf(3) + linesOf(3)), "--dry-run")
    assert.deepStrictEqual([repeated.code, repeated.stderr], [0, "Valid 6, refused 0.\n"])

    const file = write("second.jsonl", linesOf(1) + openai)
    const dry = yield* run(file, "--dry-run")
    assert.deepStrictEqual([dry.code, dry.stderr], [1, "Lines were refused. Valid 1, refused 1.\n"])
    assert.deepStrictEqual(refused(dry.stdout), full)
    assert.strictEqual(yield* countIn(sql), 3)
    const real = yield* run(file)
    assert.deepStrictEqual(
      [real.code, real.stderr],
      [1, "Lines were refused. Imported 1, imported before 0, refused 1.\n"]
    )
    assert.deepStrictEqual(refused(real.stdout), full)
  })

  it.live.skipIf(withoutJq)("refuses CSV, but accepts what docs/commands.md makes of it with jq", function* () {
    const { account_id, directory, importFrom, settings, sql, write } = yield* begin
    const file = write(
      "keys.csv",
      '\ufeffprovider,key,name,allowed_models,disabled\r\nopenai,"{""api_key"":""sk-0123456789-0123456789"",""region"":""eu""}","a, b","[""gpt-4o""]",TRUE\r\n\r\ngroq,gsk-0123456789-0123456789,,,\r\n'
    )
    const refused =
      "Only JSON lines are imported: convert CSV to them first, with the line of jq in docs/commands.md.\n"
    const told = { code: 1, stdout: "", stderr: refused }
    assert.deepStrictEqual(yield* importFrom(file), told)
    assert.deepStrictEqual(yield* importFrom(write("keys.txt", readFileSync(file, "utf8"))), told)
    const converted = yield* runShell(conversion, { cwd: directory })
    assert.deepStrictEqual(converted, { code: 0, stdout: "", stderr: "" })
    const first = yield* importFrom(join(directory, "keys.jsonl"))
    assert.deepStrictEqual([first.code, first.stderr], [0, "Imported 2, imported before 0, refused 0.\n"])

    write(
      "same.jsonl",
      `${JSON.stringify({ provider: "openai", disabled: true, name: "a, b", allowed_models: ["gpt-4o"], key: '{"api_key":"sk-0123456789-0123456789","region":"eu"}' })}\n{"key":"gsk-0123456789-0123456789","provider":"groq","name":null}\n`
    )
    const fromInput = `byok credential import - --account ${account_id} --journal keys.jsonl.journal < same.jsonl`
    const second = yield* runShell(fromInput, { cwd: directory, variables: settings })
    assert.deepStrictEqual([second.code, second.stderr], [0, "Imported 0, imported before 2, refused 0.\n"])
    assert.deepStrictEqual(
      printed(second.stdout).map(({ id }) => id),
      printed(first.stdout).map(({ id }) => id)
    )
    assert.strictEqual(yield* countIn(sql), 2)
  })

  it.live(
    "creates nothing twice when it is run again after a kill",
    function* () {
      const { account_id, importFrom, settings, sql, write } = yield* begin
      const count = 1000
      const file = write("keys.jsonl", linesOf(count))
      const running = yield* Effect.forkScoped(
        runByok(["credential", "import", file, "--account", account_id], settings)
      )
      yield* eventually(
        "some are stored",
        Effect.map(countIn(sql), (stored) => stored >= 100)
      )
      yield* Fiber.interrupt(running)
      const before = yield* countIn(sql)
      assert.isBelow(before, count, "killed before the end (control)")
      const again = yield* importFrom(file)
      assert.strictEqual(again.code, 0, again.stderr)
      const results = printed(again.stdout)
      assert.deepStrictEqual(
        results.map(({ line }) => line),
        Array.from({ length: count }, (_, index) => index + 1)
      )
      assert.isAtLeast(results.filter(({ replayed }) => replayed).length, 100)
      assert.strictEqual(new Set(results.map(({ id }) => id)).size, count)
      assert.strictEqual(yield* countIn(sql), count)
    },
    180_000
  )

  it.live("refuses a file others can read, an unknown account, and an old or another account's journal", function* () {
    const { account_id, importFrom, settings, sql, write } = yield* begin
    for (const mode of [0o644, 0o640, 0o666, 0o700]) {
      const file = write("shared.jsonl", linesOf(1), mode)
      const { code, stderr, stdout } = yield* importFrom(file)
      const found = mode.toString(8).padStart(4, "0")
      assert.deepStrictEqual(
        { code, stdout, stderr },
        { code: 1, stdout: "", stderr: `${file}: expected a file of mode 0400 or 0600; found ${found}.\n` }
      )
    }
    const file = write("keys.jsonl", linesOf(1), 0o400)
    const other = textIn(yield* createAccount(settings), "account_id")
    const own = { account_id, salt: Buffer.alloc(32).toString("base64"), created_at: new Date().toISOString() }
    const [yesterday, tomorrow] = [-1, 1].map((days) => new Date(Date.now() + days * 24 * 3600_000).toISOString())
    for (const [journal, said] of [
      [{}, "is not the journal of an import."],
      [
        { ...own, created_at: yesterday },
        `is from ${yesterday}, and an import can be resumed for 23 hours: remove from the file what was imported since, then the journal.`
      ],
      [{ ...own, created_at: tomorrow }, `is from ${tomorrow}, which is in the future: set the clock right.`],
      [{ ...own, account_id: other }, "is the journal of an import into another account."]
    ] as const) {
      write("keys.jsonl.journal", JSON.stringify(journal))
      assert.strictEqual((yield* importFrom(file)).stderr, `${file}.journal ${said}\n`)
    }
    write("keys.jsonl.journal", "{}", 0o644)
    assert.match((yield* importFrom(file)).stderr, /expected a file of mode 0400 or 0600; found 0644\.\n$/)
    const nobody = ["credential", "import", file, "--account", "00000000-0000-4000-8000-000000000000"]
    for (const flags of [[], ["--dry-run"]]) {
      const unknown = yield* runCommand([...nobody, ...flags], settings)
      assert.deepStrictEqual([unknown.code, unknown.stderr], [1, "There is no such account.\n"])
    }
    for (const flags of [[], ["--dry-run"]]) {
      const empty = yield* importFrom(write("empty.jsonl", "\n \n"), ...flags)
      assert.deepStrictEqual([empty.code, empty.stderr], [1, "The file has no record: nothing was imported.\n"])
    }
    const absent = yield* importFrom(`${file}.absent`)
    assert.strictEqual(
      absent.stderr,
      `${file}.absent: expected a file that can be read: no such file or directory (ENOENT).\n`
    )
    assert.strictEqual(yield* countIn(sql), 0)
  })

  it.live("shows no key and no refused line in results, errors, journal or log (T4)", function* () {
    const { directory, importFrom, write } = yield* begin
    const secrets = [
      "Qx7Lm2Rt9Wk4Zp8Vb3Nc6Hd1",
      "Ty5Gf8Js2Mq7Xw4Bz9Kr3Pv6",
      "Ec1Ua6Yh9Di4Ol7Sn2Fg5Tj8",
      "Wb3Xn7Cq1Lz5Rv9Mk4Pd8Jh2"
    ]
    const content = [
      `{"provider":"openai","key":"${secrets[0]}"}`,
      `{"provider":"groq","key":"${secrets[1]}","name":7}`,
      `{"provider":"groq","key":"${secrets[2]}"`,
      secrets[3]
    ].join("\n")
    const outputs: Array<string> = []
    for (const [name, text] of [
      ["keys.jsonl", content],
      ["csv.jsonl", `provider,key\ngroq,"${secrets[0]}"x\ngroq,${secrets[1]}"\n${secrets[2]},${secrets[3]}\n`]
    ] as const) {
      const file = write(name, text)
      for (const flags of [["--dry-run"], []]) {
        const { code, stderr, stdout } = yield* importFrom(file, ...flags)
        assert.strictEqual(code, 1)
        outputs.push(stdout, stderr)
      }
      assert.isTrue(existsSync(join(directory, `${name}.journal`)))
      outputs.push(readFileSync(join(directory, `${name}.journal`), "utf8"))
    }
    assert.isUndefined(leakOf(outputs.join("\n"), secrets))
    assert.isDefined(leakOf([...outputs, content].join("\n"), secrets), "control")
  })
})
