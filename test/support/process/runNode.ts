import { spawn } from "node:child_process"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { Effect } from "effect"

/** The output and exit code of a process that has ended. */
export interface Finished {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** None of the developer's own settings, room for as many credentials as there may be, and a cache of compiled modules. */
export const environment = {
  PATH: `${dirname(process.execPath)}:${process.env["PATH"] ?? "/usr/bin:/bin"}`,
  TMPDIR: tmpdir(),
  NODE_COMPILE_CACHE: join(import.meta.dirname, "../../../node_modules/.cache/compile"),
  MAX_CREDENTIALS: "1000"
}

/** Runs a program to its end. */
export const runProgram = (
  program: string,
  args: ReadonlyArray<string>,
  { cwd = tmpdir(), variables = {} }: { readonly cwd?: string; readonly variables?: Record<string, string> } = {}
) =>
  Effect.callback<Finished>((resume) => {
    const child = spawn(program, args, {
      cwd,
      env: { ...environment, ...variables },
      stdio: ["ignore", "pipe", "pipe"]
    })
    const text = { stdout: "", stderr: "" }
    child.stdout.setEncoding("utf8").on("data", (part: string) => (text.stdout += part))
    child.stderr.setEncoding("utf8").on("data", (part: string) => (text.stderr += part))
    child.once("error", (error) => resume(Effect.die(error)))
    child.once("close", (code) => resume(Effect.succeed({ ...text, code })))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** Runs Node, the one that runs the tests, to its end. */
export const runNode = (
  args: ReadonlyArray<string>,
  options?: { readonly cwd?: string; readonly variables?: Record<string, string> }
) => runProgram(process.execPath, args, options)
