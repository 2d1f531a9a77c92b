import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as CommandLineLive from "../support/CommandLine.ts"
import { CommandLine } from "../support/CommandLine.ts"
import { runByok } from "../support/runByok.ts"

const uuid = "01935f6a-0000-7000-8000-000000000000"
const canary = "canary-canary"

layer(CommandLineLive.layer, { excludeTestServices: true, concurrent: true })(
  "a failure is one sentence on standard error and exit code 1, with nothing on standard output",
  (it) => {
    it.effect.each<readonly [args: string, sentence: string]>([
      [`workspace create --account ${uuid} --name n`, "There is no such account."],
      [`workspace list --account ${uuid} --json`, "There is no such account."],
      [`api-key issue --account ${uuid} --name n --json`, "There is no such account."],
      [`api-key list --account ${uuid}`, "There is no such account."],
      [`workspace delete ${uuid}`, "There is no such workspace."],
      [`api-key revoke ${"0".repeat(64)}`, "There is no such API key."]
    ])("%s (D40)", ([args, sentence]) =>
      Effect.gen(function* () {
        const { run } = yield* CommandLine
        assert.deepStrictEqual(yield* run(...args.split(" ")), { code: 1, stdout: "", stderr: `${sentence}\n` })
      })
    )

    it.effect("a database that cannot be reached is told without its URL", () =>
      Effect.gen(function* () {
        const DATABASE_URL = `postgres://${canary}:${canary}@127.0.0.1:1/${canary}`
        assert.deepStrictEqual(yield* runByok(["migrate", "--json"], { DATABASE_URL }), {
          code: 1,
          stdout: "",
          stderr: "The database cannot be used: ConnectionError ECONNREFUSED.\n"
        })
      })
    )

    it.effect.each<readonly [variables: Record<string, string>, sentence: string]>([
      [{ PORT: canary }, "PORT must be a whole number from 0 to 65535."],
      [{ DATABASE_URL: "" }, "DATABASE_URL must not be empty: unset it to use the embedded database."],
      [{ LOG_LEVEL: canary }, "LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, none."],
      [{ LOG_FORMAT: canary }, "LOG_FORMAT must be pretty, logfmt or json."],
      [
        { OTEL_EXPORTER_OTLP_ENDPOINT: canary },
        "OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https URL without user and password."
      ],
      [
        { DATABASE_URL: `postgres://u:${canary}@db.example.org/d` },
        "DATABASE_URL leads to another machine without TLS: add sslmode=verify-full."
      ]
    ])("a setting that is wrong is named and its value is not shown: %j", ([variables, sentence]) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* runByok(["account", "create", "--name", "n"], variables), {
          code: 1,
          stdout: "",
          stderr: `${sentence}\n`
        })
      })
    )
  }
)
