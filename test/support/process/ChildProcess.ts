import { Effect, type Scope } from "effect"
import { spawn } from "node:child_process"
import { tmpdir } from "node:os"
import { postgresUser } from "../../../src/sql/embedded/PostgresBinaries.ts"

export interface ChildProcess {
  readonly pid: number
  readonly exitCode: () => number | undefined
  readonly exited: Effect.Effect<number>
  /** The end of its standard error. */
  readonly lastWords: () => string
}

/** Runs a program that refuses to run as root, as PostgreSQL does, and asks it to end when the scope closes. */
export const run = (
  program: string,
  args: ReadonlyArray<string>,
  variables: Record<string, string> = {}
): Effect.Effect<ChildProcess, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(program, args, {
        cwd: tmpdir(),
        env: { PATH: process.env["PATH"], LC_ALL: "C", TZ: "UTC", ...variables },
        stdio: ["ignore", "ignore", "pipe"],
        ...postgresUser
      })
      let exitCode: number | undefined
      let words = ""
      child.stderr.setEncoding("utf8").on("data", (text: string) => (words = (words + text).slice(-8_000)))
      const exited = new Promise<number>((resolve) => {
        const settle = (code: number) => resolve((exitCode = code))
        child.once("exit", (code) => settle(code ?? 1)).once("error", ({ message }) => settle(((words = message), 127)))
      })
      return {
        pid: child.pid ?? 0,
        exitCode: () => exitCode,
        exited: Effect.promise(() => exited),
        lastWords: () => words.trim(),
        kill: (signal: NodeJS.Signals) => Effect.sync(() => child.kill(signal))
      }
    }),
    ({ exited, kill }) =>
      Effect.forEach(["SIGINT", "SIGQUIT", "SIGKILL"] as const, (signal) =>
        Effect.andThen(kill(signal), Effect.timeoutOption(exited, "10 seconds"))
      )
  )
