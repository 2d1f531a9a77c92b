import { dirname } from "node:path"
import { ringOf } from "./support/keys/keyrings.ts"
import { byokScript, byokSource } from "./support/process/runByok.ts"
import { runNode, runProgram } from "./support/process/runNode.ts"
import { assert, describe, it } from "./support/it.ts"

/** Runs the program in a Node that says it is of another version. */
const runAs = (version: string, program: string) => {
  const pretend = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } })`
  return runNode(["--import", `data:text/javascript,${encodeURIComponent(pretend)}`, program, "--version"])
}

describe.each([
  ["its sources", byokSource],
  ["its bundle", byokScript]
])("the check of the Node.js version, when byok runs from %s", (_title, program) => {
  it.live.each(["18.20.8", "20.20.2", "22.18.0"])("refuses Node.js %s with exit code 1", function* (version) {
    assert.deepStrictEqual(yield* runAs(version, program), {
      code: 1,
      stdout: "",
      stderr: `byok needs Node.js 22.19 or later; this is ${version}.\n`
    })
  })

  it.live.each(["22.19.0", "24.0.0"])("accepts Node.js %s", function* (version) {
    assert.deepStrictEqual(yield* runAs(version, program), { code: 0, stdout: "byok v1.0.0\n", stderr: "" })
  })
})

it.live("runs from its bundle in a checkout, and from its sources if no bundle can be made", function* () {
  const shown = `data:text/javascript,${encodeURIComponent("console.error(process.argv[1])")}`
  const npmRun = (variables: Record<string, string>) =>
    runProgram("npm", ["run", "-s", "byok", "--", "--version"], { cwd: dirname(dirname(byokSource)), variables })
  const bundled = yield* npmRun({ NODE_OPTIONS: `--import=${shown}` })
  assert.strictEqual(bundled.stdout, "byok v1.0.0\n")
  assert.strictEqual(bundled.stderr.trimEnd().split("\n").at(-1), byokScript)
  const failing = `data:text/javascript,${encodeURIComponent("if (process.argv[1].endsWith('bundle.ts')) process.exit(1)")}`
  const sources = yield* npmRun({ NODE_OPTIONS: `--import=${shown} --import=${failing}` })
  assert.strictEqual(sources.stdout, "byok v1.0.0\n")
  assert.strictEqual(sources.stderr.trimEnd().split("\n").at(-1), byokSource)
})

describe("a service that gets a stop signal while its program is still loading", () => {
  it.live.each(["SIGTERM", "SIGINT"])("exits with code 0 before it serves, on %s", function* (signal) {
    // Once the first lines of the program have run, and before it loads the rest.
    const early = `const { on } = process
        process.on = function (name, listener) {
          if (name === "SIGHUP") queueMicrotask(() => process.kill(process.pid, "${signal}"))
          return on.call(this, name, listener)
        }`
    const program = ["--import", `data:text/javascript,${encodeURIComponent(early)}`, byokScript, "serve"]
    const variables = { DATABASE_URL: "postgres://u@127.0.0.1:1/d", BYOK_KEYRING: ringOf("kek"), PORT: "0" }
    const { code, stdout } = yield* runNode(program, { variables })
    assert.deepStrictEqual({ code, stdout }, { code: 0, stdout: "" })
  })
})
