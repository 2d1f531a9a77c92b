import { spawn } from "node:child_process"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { adminClient, freshDatabase } from "../support/database/freshDatabase.ts"
import { refuseInserts } from "../support/database/transactions.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { CommandLine } from "../support/process/CommandLine.ts"
import { byokScript, nowhere, runByok } from "../support/process/runByok.ts"
import { environment } from "../support/process/runNode.ts"
import { runCommand } from "../support/process/runCommand.ts"

const uuid = "01935f6a-0000-7000-8000-000000000000"
const canary = "canary-canary"

layerLive(CommandLine.layer, { concurrent: true })(
  "a failure is one sentence on standard error and exit code 1, with nothing on standard output",
  (it) => {
    it.effect.each<readonly [args: string, sentence: string]>([
      [`workspace create --account ${uuid} --name n`, "There is no such account."],
      [`workspace list --account ${uuid} --json`, "There is no such account."],
      [`api-key issue --account ${uuid} --name n --json`, "There is no such account."],
      [`api-key import ${"0".repeat(64)} --account ${uuid} --name n`, "There is no such account."],
      [`api-key list --account ${uuid}`, "There is no such account."],
      [`workspace delete ${uuid}`, "There is no such workspace."],
      [`api-key revoke ${"0".repeat(64)}`, "There is no such API key."]
    ])("%s (D40)", ([args, sentence]) =>
      Effect.gen(function* () {
        const { run } = yield* CommandLine
        assert.deepStrictEqual(yield* run(...args.split(" ")), { code: 1, stdout: "", stderr: `${sentence}\n` })
      })
    )

    it.effect("an unreachable database is reported without its URL, during the attempts and at the end", () =>
      Effect.gen(function* () {
        const DATABASE_URL = `postgres://${canary}:${canary}@127.0.0.1:1/${canary}`
        const { code, stderr, stdout } = yield* runCommand(["migrate", "--json"], {
          DATABASE_URL,
          LOG_FORMAT: "logfmt"
        })
        assert.deepStrictEqual({ code, stdout }, { code: 1, stdout: "" })
        const [log, ...sentence] = stderr.split("\n")
        assert.match(
          log ?? "",
          / level=WARN .*message="DATABASE_URL cannot be reached \(ECONNREFUSED\); retrying for up to 10 seconds"/
        )
        assert.match(
          sentence.join("\n"),
          /^DATABASE_URL cannot be reached \(ECONNREFUSED\); gave up after \d\d seconds\.\n$/
        )
        assert.notInclude(stderr, canary)
      })
    )

    it.effect.each<readonly [sqlstate: string, said: string]>([
      ["42501", "the user lacks a permission (AuthorizationError 42501)"],
      ["53100", "the disk of the database is full (UnknownError 53100)"],
      ["53300", "the database takes no more connections (UnknownError 53300)"],
      ["25P02", "an earlier statement of the transaction failed (UnknownError 25P02)"]
    ])("a statement that fails with %s is told in words (C4)", ([sqlstate, said]) =>
      Effect.gen(function* () {
        const DATABASE_URL = yield* freshDatabase
        const sql = yield* adminClient(DATABASE_URL)
        assert.strictEqual((yield* runCommand(["migrate"], { DATABASE_URL })).code, 0)
        yield* refuseInserts(sql, "accounts", sqlstate)
        const { code, stderr } = yield* runCommand(["account", "create", "--name", "n"], { DATABASE_URL })
        assert.deepStrictEqual([code, stderr], [1, `The database failed: ${said}.\n`])
      })
    )

    it.effect("an empty DATABASE_URL is refused, for it must not select the embedded database", () =>
      Effect.gen(function* () {
        const sentence = "DATABASE_URL must not be empty: unset it to use the embedded database."
        const failed = { code: 1, stdout: "", stderr: `${sentence}\n` }
        assert.deepStrictEqual(yield* runByok(["account", "create", "--name", "n"], { DATABASE_URL: "" }), failed)
      })
    )

    it.effect.each(["SIGINT", "SIGTERM"] as const)("a command that %s interrupts exits with 130", (signal) =>
      Effect.gen(function* () {
        const variables = { DATABASE_URL: "postgres://u@127.0.0.1:1/d", LOG_FORMAT: "logfmt" }
        const code = yield* Effect.promise(
          () =>
            new Promise<number | null>((resolve) => {
              const child = spawn(process.execPath, [byokScript, "migrate"], {
                env: { ...environment, ...nowhere, ...variables },
                stdio: ["ignore", "ignore", "pipe"]
              })
              child.stderr.once("data", () => child.kill(signal))
              child.once("close", resolve)
            })
        )
        assert.strictEqual(code, 130)
      })
    )

    const missing = "BYOK_KEYRING_FILE or BYOK_KEYRING must be set when DATABASE_URL is"
    it.effect.each<readonly [args: string, variables: Record<string, string>, sentence: string]>([
      ["serve", {}, missing],
      ["serve", { BYOK_KEYRING: canary }, "BYOK_KEYRING: key 1: expected id:base64 of 32 bytes"],
      ["serve", { BYOK_KEYRING_FILE: canary }, "BYOK_KEYRING_FILE: expected a file that can be read; found ENOENT"],
      ["keyring status", {}, missing],
      ["keyring add", {}, missing]
    ])("%s %j: a missing or wrong keyring is reported before waiting for the database", ([args, given, sentence]) =>
      Effect.gen(function* () {
        const DATABASE_URL = `postgres://u@127.0.0.1:1/d`
        const { code, stderr, stdout } = yield* runCommand(args.split(" "), { DATABASE_URL, ...given })
        assert.deepStrictEqual({ code, stdout }, { code: 1, stdout: "" })
        assert.strictEqual(stderr.slice(0, sentence.length), sentence)
        assert.match(stderr, /^[^\n]+\.\n$/)
      })
    )

    it.effect.each<readonly [variables: Record<string, string>, sentence: string]>([
      [{ PORT: canary }, "PORT must be a whole number from 0 to 65535."],
      [{ LOG_LEVEL: canary }, "LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, none."],
      [{ LOG_FORMAT: canary }, "LOG_FORMAT must be pretty, logfmt or json."],
      [
        { OTEL_EXPORTER_OTLP_ENDPOINT: canary },
        "OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https URL without user and password."
      ],
      [{ BYOK_DATA_DIR: `/dev/null/${canary}` }, "BYOK_DATA_DIR must be a writable directory; found ENOTDIR."],
      [
        { DATABASE_URL: `postgres://u:${canary}@db.example.org/d` },
        "DATABASE_URL points to another machine without TLS: add sslmode=verify-full."
      ]
    ])("a wrong setting is named without its value: %j", ([variables, sentence]) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* runCommand(["account", "create", "--name", "n"], variables), {
          code: 1,
          stdout: "",
          stderr: `${sentence}\n`
        })
      })
    )
  }
)
