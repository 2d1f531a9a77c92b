import { spawn } from "node:child_process"
import { readdirSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { listen } from "../support/database/listen.ts"
import { refuseInserts } from "../support/database/transactions.ts"
import { assert, layerLive } from "../support/it.ts"
import { CommandLine } from "../support/process/CommandLine.ts"
import { byokScript, nowhere, runByok } from "../support/process/runByok.ts"
import { environment } from "../support/process/runNode.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const uuid = "01935f6a-0000-7000-8000-000000000000"
const canary = "canary-canary"

layerLive(CommandLine.layer, { concurrent: true })(
  "failures of byok commands, and the sentences on standard error that report them",
  (it) => {
    it.effect.each<readonly [args: string, sentence: string]>([
      [`workspace create --account ${uuid} --name n`, "There is no such account."],
      [`workspace list --account ${uuid} --json`, "There is no such account."],
      [`api-key issue --account ${uuid} --name n --json`, "There is no such account."],
      [`api-key import ${"0".repeat(64)} --account ${uuid} --name n`, "There is no such account."],
      [`api-key list --account ${uuid}`, "There is no such account."],
      [`workspace delete ${uuid} --yes`, "There is no such workspace."],
      [`api-key revoke ${"0".repeat(64)}`, "There is no such API key."]
    ])("byok %s exits with 1 and says only: %s (D40)", function* ([args, sentence]) {
      const { run } = yield* CommandLine
      assert.deepStrictEqual(yield* run(...args.split(" ")), { code: 1, stdout: "", stderr: `${sentence}\n` })
    })

    it.effect("a refused database connection is reported at once, without the database URL (C9)", function* () {
      const DATABASE_URL = `postgres://${canary}:${canary}@127.0.0.1:1/${canary}`
      const stderr = "DATABASE_URL cannot be reached (ECONNREFUSED).\n"
      for (const command of [
        ["migrate", "--json"],
        ["account", "list"]
      ]) {
        assert.deepStrictEqual(yield* runCommand(command, { DATABASE_URL }), { code: 1, stdout: "", stderr })
      }
    })

    it.effect("a failed SQL statement is reported with its SQLSTATE explained in words (C4)", function* () {
      const DATABASE_URL = yield* migratedDatabase
      const sql = yield* adminClient(DATABASE_URL)
      for (const [sqlstate, said] of [
        ["42501", "the user lacks a permission (AuthorizationError 42501)"],
        ["53100", "the disk of the database is full (UnknownError 53100)"],
        ["53300", "the database takes no more connections (UnknownError 53300)"],
        ["25P02", "an earlier statement of the transaction failed (UnknownError 25P02)"]
      ] as const) {
        yield* refuseInserts(sql, "accounts", sqlstate)
        const { code, stderr } = yield* runCommand(["account", "create", "--name", "n"], { DATABASE_URL })
        assert.deepStrictEqual([code, stderr], [1, `The database failed: ${said}.\n`])
        yield* sql`DROP FUNCTION refuse CASCADE`
      }
    })

    it.effect("an empty DATABASE_URL is refused; it does not select the embedded database", function* () {
      const sentence = "DATABASE_URL must not be empty: unset it to use the embedded database."
      const failed = { code: 1, stdout: "", stderr: `${sentence}\n` }
      assert.deepStrictEqual(yield* runByok(["account", "create", "--name", "n"], { DATABASE_URL: "" }), failed)
    })

    it.effect.each(["SIGINT", "SIGTERM"] as const)("a command interrupted by %s exits with 130", function* (signal) {
      const port = yield* listen((socket) => socket.destroy())
      const variables = { DATABASE_URL: `postgres://u@127.0.0.1:${port}/d`, LOG_FORMAT: "logfmt" }
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

    it.effect("commands other than serve create no database, and say that there is none (C6)", function* () {
      const folder = yield* temporaryDirectory
      const stderr = "BYOK_DATA_DIR holds no database: start `byok serve`, which creates it, or set DATABASE_URL.\n"
      for (const args of ["account create --name n", "migrate", "keyring add", "keyring status", "audit verify"]) {
        const finished = yield* runCommand(args.split(" "), { BYOK_DATA_DIR: join(folder, "data") })
        assert.deepStrictEqual(finished, { code: 1, stdout: "", stderr }, args)
      }
      assert.deepStrictEqual(readdirSync(folder), [])
    })

    it.effect("a warning suggests the right name of a misspelt setting (C6)", function* () {
      const misspelt = {
        BYOK_KEYRINGFILE: canary,
        BYOK_DATABASE_URL: canary,
        BYOK_SERVICE_HOST: canary,
        MAX_CREDENTIAL: canary,
        LOGLEVEL: canary,
        POST: canary
      }
      const { stderr } = yield* runByok(["account", "list"], { ...misspelt, LOG_FORMAT: "logfmt" })
      assert.deepStrictEqual(
        Array.from(stderr.matchAll(/level=WARN .*message="(.*)"/g), ([, message]) => message),
        [
          "BYOK_KEYRINGFILE is not a setting: is BYOK_KEYRING_FILE meant?",
          "BYOK_DATABASE_URL is not a setting: is DATABASE_URL meant?",
          "MAX_CREDENTIAL is not a setting: is MAX_CREDENTIALS meant?",
          "LOGLEVEL is not a setting: is LOG_LEVEL meant?"
        ]
      )
      assert.notInclude(stderr, canary)
    })

    const missing = "BYOK_KEYRING_FILE, BYOK_KEYRING_COMMAND or BYOK_KEYRING must be set when DATABASE_URL is"
    it.effect.each<readonly [args: string, keyring: string, variables: Record<string, string>, sentence: string]>([
      ["serve", "no keyring", {}, missing],
      [
        "serve",
        "an invalid BYOK_KEYRING",
        { BYOK_KEYRING: canary },
        "BYOK_KEYRING: key 1: expected id:base64 of 32 bytes"
      ],
      ["keyring status", "no keyring", {}, missing],
      ["keyring add", "no keyring", {}, missing]
    ])(
      "byok %s with %s in the settings says so in one sentence, without connecting to the database",
      function* ([args, , given, sentence]) {
        const DATABASE_URL = `postgres://u@127.0.0.1:1/d`
        const { code, stderr, stdout } = yield* runCommand(args.split(" "), { DATABASE_URL, ...given })
        assert.deepStrictEqual({ code, stdout }, { code: 1, stdout: "" })
        assert.strictEqual(stderr.slice(0, sentence.length), sentence)
        assert.match(stderr, /^[^\n]+\.\n$/)
        assert.notInclude(stderr, canary)
      }
    )

    it.effect.each<readonly [variables: Record<string, string>, sentence: string, command?: string]>([
      [{ PORT: canary }, "PORT must be a whole number from 0 to 65535."],
      [{ LOG_LEVEL: canary }, "LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, none."],
      [
        { BYOK_DATA_DIR: `/dev/null/${canary}` },
        "BYOK_DATA_DIR must be a writable directory: not a directory (ENOTDIR).",
        "serve"
      ],
      [
        { BYOK_DATA_DIR: `/proc/${canary}` },
        "BYOK_DATA_DIR must be a writable directory: no such file or directory (ENOENT).",
        "serve"
      ],
      [
        { DATABASE_URL: `postgres://u:${canary}@db.example.org/d` },
        "DATABASE_URL points to another machine without TLS: add sslmode=verify-full."
      ]
    ])(
      "the error for a bad setting names it, but does not show its value: %j",
      function* ([variables, sentence, command = "account list"]) {
        assert.deepStrictEqual(yield* runCommand(command.split(" "), variables), {
          code: 1,
          stdout: "",
          stderr: `${sentence}\n`
        })
      }
    )
  }
)
