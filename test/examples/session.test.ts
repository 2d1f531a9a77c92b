import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { migratedDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { createAccount, textIn } from "../support/process/CommandLine.ts"
import { eventually } from "../support/process/eventually.ts"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runShell } from "../support/process/runByok.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { fakeUpstream } from "./FakeUpstream.ts"
import { terminalOf, type Typed } from "./Terminal.ts"
import { assert, it } from "../support/it.ts"

const project = join(import.meta.dirname, "../..")
const picture = join(project, "docs/session.svg")

const create = (name: string, key: string) => `curl -s $BYOK/api/v1/byok -H "Authorization: Bearer $MANAGEMENT_KEY" \\
    --json '{"provider":"openai","name":"${name}","key":"${key}"}' | jq .data.label`

const limited = "sk-first-0123456789-7f3a"
const commands = [
  `# A customer stores two keys. From now on, everybody sees masked labels.\n${create("Research", limited)}`,
  create("Backup", "sk-second-0123456789-Q2xw"),
  `# A gateway serves a request. It gets one key at a time, and says how the provider answered.
node examples/gateway.mjs $SOCKET $ACCOUNT $UPSTREAM`,
  `# Why was the first key not used? The provider said 429, and to come back in 30 seconds.
byok explain --account $ACCOUNT --provider openai --model openai/gpt-4o`
]

/** Removes the times, which differ from run to run. */
const withoutTimes = (text: string) => text.replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, "TIME")

it.live("the session shown in the README equals what its commands print, as recorded by `npm run session`", () =>
  Effect.gen(function* () {
    // npm installs neither: .ci/run does, and the last lines of a run count what was skipped.
    yield* installedPrograms(["curl", "jq"])
    const settings = { DATABASE_URL: yield* migratedDatabase, BYOK_KEYRING: ringOf("kek") }
    const account = yield* createAccount(settings)
    const SOCKET = join(yield* temporaryDirectory, "gateway.sock")
    const { url } = yield* startService({ ...settings, BYOK_GATEWAY_SOCKET: SOCKET })
    const upstream = yield* fakeUpstream((key, response) => {
      if (key !== limited) return response.end(`{"choices":[{"message":{"content":"Hello!"}}]}\n`)
      return response.writeHead(429, { "retry-after": "30" }).end(`{"error":{"code":"rate_limit_exceeded"}}`)
    })
    const variables = {
      ...settings,
      BYOK: url,
      SOCKET,
      UPSTREAM: upstream.url,
      ACCOUNT: textIn(account, "account_id"),
      MANAGEMENT_KEY: textIn(account, "management_key")
    }
    const run = (command: string) =>
      Effect.map(runShell(`exec 2>&1\n${command}`, { cwd: project, variables }), ({ stdout: printed }) => ({
        command,
        printed
      }))
    const session: Array<Typed> = []
    for (const command of commands) session.push(yield* run(command))
    // A parking is stored beside the requests.
    const why = commands.at(-1) ?? ""
    yield* eventually("the parking is stored", run(why), (typed) => {
      session[session.length - 1] = typed
      return typed.printed.includes("tried again")
    })
    const drawn = terminalOf("A key is refused with 429, the next one serves the request, and byok says why", session)
    if (process.env["RECORD_SESSION"] === "true") writeFileSync(picture, drawn)
    assert.strictEqual(withoutTimes(drawn), withoutTimes(readFileSync(picture, "utf8")))
  }).pipe(Effect.scoped)
)
