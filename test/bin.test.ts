import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { byokScript, byokSource } from "./support/process/runByok.ts"
import { runNode } from "./support/process/runNode.ts"

/** Runs the program in a Node that says it is of another version. */
const runAs = (version: string, program: string) => {
  const pretend = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } })`
  return runNode(["--import", `data:text/javascript,${encodeURIComponent(pretend)}`, program, "--version"])
}

describe.each([
  ["the sources", byokSource],
  ["the bundle", byokScript]
])("the version of Node.js that %s asks for", (_title, program) => {
  it.live.each(["18.20.8", "20.20.2", "22.18.0"])("%s is refused in one sentence, with exit code 1", (version) =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* runAs(version, program), {
        code: 1,
        stdout: "",
        stderr: `byok needs Node.js 22.19 or later; this is ${version}.\n`
      })
    })
  )

  it.live.each(["22.19.0", "24.0.0"])("%s is accepted", (version) =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* runAs(version, program), { code: 0, stdout: "byok v2.0.0\n", stderr: "" })
    })
  )
})
