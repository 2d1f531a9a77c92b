import { spawn } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { byokScript, nowhere } from "./runByok.ts"
import { environment } from "./runNode.ts"
import { eventually } from "./eventually.ts"

/** A running `byok serve`. */
export interface ServiceProcess {
  readonly url: string
  readonly pid: number
  /** All that it has printed so far. */
  readonly stdout: () => string
  readonly stderr: () => string
  readonly signal: (name: NodeJS.Signals) => Effect.Effect<void>
  /** Its exit code, or the name of the signal that ended it. */
  readonly ended: Effect.Effect<number | NodeJS.Signals>
}

/** Starts the service on a port of its own and answers once it listens; it is stopped when the scope closes. */
export const startService = (variables: Record<string, string>, program = [byokScript, "serve"]) =>
  Effect.acquireRelease(
    Effect.callback<ServiceProcess>((resume) => {
      const child = spawn(process.execPath, program, {
        cwd: tmpdir(),
        env: { ...environment, ...nowhere, PORT: "0", ...variables },
        stdio: ["ignore", "pipe", "pipe"]
      })
      let stdout = ""
      let stderr = ""
      const ended = new Promise<number | NodeJS.Signals>((resolve) =>
        child.once("close", (code, signal) => resolve(code ?? signal ?? 0))
      )
      child.stderr.setEncoding("utf8").on("data", (part: string) => (stderr += part))
      child.stdout.setEncoding("utf8").on("data", (part: string) => {
        stdout += part
        const [, url] = /^(?:byok listens on |\{.*"url":")(https?:[^\s,"]+)[^\n]*\n/.exec(stdout) ?? []
        if (url === undefined || child.pid === undefined) return
        resume(
          Effect.succeed({
            url,
            pid: child.pid,
            stdout: () => stdout,
            stderr: () => stderr,
            signal: (name) => Effect.sync(() => void child.kill(name)),
            ended: Effect.promise(() => ended)
          })
        )
      })
      void ended.then((how) => resume(Effect.die(new Error(`the service ended with ${how}: ${stdout}${stderr}`))))
    }),
    ({ ended, signal }) =>
      Effect.andThen(
        signal("SIGTERM"),
        Effect.timeoutOrElse(ended, { duration: "5 seconds", orElse: () => Effect.andThen(signal("SIGKILL"), ended) })
      )
  )

const lockFile = (dataDirectory: string) => join(dataDirectory, "postgres/postmaster.pid")

/** The process of the embedded database of a data directory, which must be running. */
export const postmasterOf = (dataDirectory: string): number =>
  Number(readFileSync(lockFile(dataDirectory), "utf8").split("\n")[0])

/** Whether the embedded database was shut down in order. */
export const isShutDown = (dataDirectory: string): boolean => !existsSync(lockFile(dataDirectory))

/** Whether there is a process of that number. */
export const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Where a service that logs at `info` has its management port, once it says so. */
export const managementUrl = Effect.fnUntraced(function* ({ stderr }: Pick<ServiceProcess, "stderr">) {
  const found = () => /management port listens on (http:\/\/[\w.:[\]]+)/.exec(stderr())?.[1]
  yield* eventually("the management port listens", () => found() !== undefined)
  return found() ?? ""
})
