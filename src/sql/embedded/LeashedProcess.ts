import { Effect } from "effect"
import { spawn } from "node:child_process"
import { Socket } from "node:net"
import { setTimeout } from "node:timers/promises"
import { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"

/** PostgreSQL refuses to run as root; a service that runs as root starts it as nobody. */
export const postgresUser = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : undefined

export interface LeashedProcess {
  /** The program's, not its shell's. */
  readonly pid: number
  readonly exitCode: () => number | undefined
  readonly exited: Effect.Effect<number>
  readonly lastWords: () => string
  /** Stops it from keeping this process alive. */
  readonly unref: () => void
}

/**
 * The program ends when the other end of standard input closes, however its holder dies. The shell outlives the program
 * to pass on its exit code, and ignores signals meant for the whole service.
 */
const leash = `
trap '' HUP INT TERM
exec 3<&0 </dev/null
"$@" 3<&- >/dev/null &
program=$!
echo "$program"
exec >/dev/null 2>&1
{ while read -r _ <&3; do :; done; kill -INT "$program"; } &
reader=$!
exec 3<&-
wait "$program"
code=$?
kill -KILL "$reader"
wait
exit "$code"
`

/** Only what it needs: the service's environment holds secrets, and PG* variables would redirect PostgreSQL. */
const environment = { PATH: process.env["PATH"] ?? "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" }

/** Runs a program until the scope closes. */
export const run = (program: string, args: ReadonlyArray<string>, variables: Record<string, string> = {}) =>
  Effect.map(Effect.acquireRelease(launch(program, args, variables), stop), ({ process }) => process)

interface Launched {
  readonly process: LeashedProcess
  readonly release: () => void
  readonly exitedWithin: (milliseconds: number) => Effect.Effect<boolean>
}

const launch = (program: string, args: ReadonlyArray<string>, variables: Record<string, string>) =>
  Effect.callback<Launched, EmbeddedPostgresError>((resume) => {
    const shell = spawn("/bin/sh", ["-c", leash, "byok-leash", program, ...args], {
      cwd: "/",
      detached: true,
      env: { ...environment, ...variables },
      stdio: "pipe",
      ...postgresUser
    })
    shell.once("error", (error) =>
      resume(Effect.fail(EmbeddedPostgresError.of(`${program} cannot be started: ${error.message}`)))
    )
    // A process that did not start has no streams.
    if (shell.pid === undefined) return
    for (const stream of [shell.stdin, shell.stdout, shell.stderr]) {
      stream.on("error", () => undefined)
      if (stream instanceof Socket) stream.unref()
    }

    let pid = 0
    let exitCode: number | undefined
    let words = ""
    shell.stderr.setEncoding("utf8").on("data", (text: string) => {
      words = (words + text).split("\n").slice(-21).join("\n").slice(-8_000)
    })
    const exited = new Promise<number>((resolve) => {
      const settle = (code: number) => resolve((exitCode = code))
      // An orphan of the program may keep standard error open: wait for its last words only briefly.
      shell.once("exit", (code) => void setTimeout(100).then(() => settle(code ?? 1)))
      shell.once("close", (code) => settle(code ?? 1))
    })

    const ready = () =>
      resume(
        Effect.succeed({
          process: {
            pid,
            exitCode: () => exitCode,
            exited: Effect.promise(() => exited),
            lastWords: () => words.trim(),
            unref: () => shell.unref()
          },
          release: () => {
            shell.ref()
            shell.stdin.destroy()
          },
          exitedWithin: (milliseconds) =>
            Effect.promise(() =>
              Promise.race([exited.then(() => true), setTimeout(milliseconds, false, { ref: false })])
            )
        })
      )
    shell.stdout.once("data", (line: Buffer) => {
      pid = Number(line)
      ready()
    })
    void exited.then(ready)
  })

const stop = Effect.fnUntraced(function* ({ exitedWithin, release, process: { pid } }: Launched) {
  release()
  for (const [timeout, signal] of [[10_000, "SIGQUIT"] as const, [6_000, "SIGKILL"] as const]) {
    if (yield* exitedWithin(timeout)) return
    if (pid > 0) kill(pid, signal)
  }
  yield* exitedWithin(1_000)
})

const kill = (pid: number, signal: NodeJS.Signals) => {
  try {
    process.kill(pid, signal)
  } catch {
    return
  }
}
