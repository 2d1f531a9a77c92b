import { spawn } from "node:child_process"
import { tmpdir } from "node:os"
import { Effect } from "effect"
import { byokScript, nowhere } from "./runByok.ts"
import { environment, type Finished } from "./runNode.ts"

/** Runs the command line as a process of its own, with something on standard input. */
export const runByokWith = (input: string | Buffer, args: ReadonlyArray<string>, variables: Record<string, string>) =>
  Effect.callback<Finished>((resume) => {
    const child = spawn(process.execPath, [byokScript, ...args], {
      cwd: tmpdir(),
      env: { ...environment, ...nowhere, ...variables }
    })
    const text = { stdout: "", stderr: "" }
    child.stdout.setEncoding("utf8").on("data", (part: string) => (text.stdout += part))
    child.stderr.setEncoding("utf8").on("data", (part: string) => (text.stderr += part))
    child.once("close", (code) => resume(Effect.succeed({ ...text, code })))
    // A process that has refused its input already is no failure of the test.
    child.stdin.on("error", () => undefined).end(input)
    return Effect.sync(() => child.kill("SIGKILL"))
  })
