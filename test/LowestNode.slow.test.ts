import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { Skipped } from "./support/process/installedPrograms.ts"
import { runProgram } from "./support/process/runNode.ts"
import { temporaryDirectory } from "./support/process/temporaryDirectory.ts"
import { assert, it } from "./support/it.ts"

const project = join(import.meta.dirname, "..")
const { engines } = JSON.parse(readFileSync(join(project, "package.json"), "utf8")) as { engines: { node: string } }
const lowest = engines.node.replace(">=", "")
/** What npm prints if there is no network. */
const unreachable = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT)\b/
/** Where npm finds packages on this machine. */
const npmSettings = Object.fromEntries(
  Object.entries(process.env).filter((entry): entry is [string, string] =>
    /^(HOME|npm_config_|https?_proxy$)/i.test(entry[0])
  )
)

it.live.each([
  ["the lowest version of Node.js that package.json allows", lowest],
  ["the newest Node.js 24", "24"]
] as const)(
  "the limits of HTTP clients hold on %s",
  ([, version]) =>
    Effect.scoped(
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const name = `node-${process.platform}-${process.arch}`
        const install = ["install", "--fetch-retries=1", "--no-audit", "--no-fund", "--prefix", directory]
        const installed = yield* runProgram("npm", [...install, `${name}@${version}`], { variables: npmSettings })
        // Without a network, there is no other Node.js to test; any other failure of npm is one of this test.
        if (unreachable.test(installed.stderr)) return yield* new Skipped({ why: "npm does not reach its registry" })
        assert.strictEqual(installed.code, 0, installed.stderr)
        const node = join(directory, "node_modules", name, "bin/node")
        assert.match((yield* runProgram(node, ["--version"])).stdout, new RegExp(`^v${version.replace(".", "\\.")}\\.`))
        // Only later versions write head and body of an answer in one piece, which is faster.
        const files = ["test/http/ParserCut.test.ts", "test/http/Transport.test.ts"]
        const wanted = ["--project=shared", "-t", "^(?!.*one piece)", ...files]
        const { code, stdout } = yield* runProgram(node, ["node_modules/vitest/vitest.mjs", "run", ...wanted], {
          cwd: project,
          variables: { TEST_REPORT: join(directory, "report.json") }
        })
        assert.strictEqual(code, 0, stdout.slice(-5000))
      })
    ),
  300_000
)
