import { chmodSync, chownSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Exit, Scope } from "effect"
import { Client } from "pg"
import { locate, type PostgresBinaries, postgresUser } from "../../src/sql/embedded/PostgresBinaries.ts"
import { type ChildProcess, run } from "../support/process/ChildProcess.ts"
import { eventually } from "../support/process/eventually.ts"
import { runProgram } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

type Programs = Pick<PostgresBinaries, "initdb" | "postgres">

/** A PostgreSQL that the drill may kill. */
export interface Cluster {
  readonly url: string
  /** The directory of its socket. */
  readonly socket: string
  /** The data directory. */
  readonly data: string
  /** Starts it with these settings and waits until it answers. */
  readonly start: (settings?: Record<string, string>) => Effect.Effect<void>
  /** Shuts it down with a signal of PostgreSQL's: SIGINT is the fast way, SIGQUIT the immediate one. */
  readonly stop: (signal?: "SIGINT" | "SIGQUIT") => Effect.Effect<void>
  /** Whether it was started and has ended by itself. */
  readonly hasEnded: () => boolean
  /** Kills all its processes at once, as a power failure does. */
  readonly kill: Effect.Effect<void>
  readonly query: (text: string) => Effect.Effect<ReadonlyArray<Record<string, unknown>>>
}

const user = "byok"

const askOnce = (socket: string, text: string) =>
  Effect.promise(async () => {
    const client = new Client({ host: socket, user, database: "postgres" })
    client.on("error", () => undefined)
    try {
      await client.connect()
      const { rows } = await client.query<Record<string, unknown>>(text)
      return rows
    } finally {
      await client.end().catch(() => undefined)
    }
  })

/** Restricts a file or directory to PostgreSQL's user if this process is root, else to this user. */
const own = (path: string, mode: number): string => {
  if (postgresUser !== undefined) chownSync(path, postgresUser.uid, postgresUser.gid)
  chmodSync(path, mode)
  return path
}

/** A directory that PostgreSQL's user owns. */
export const ownDirectory = (directory: string): string => {
  mkdirSync(directory, { recursive: true })
  return own(directory, 0o700)
}

/** A file that PostgreSQL's user owns. */
export const writeOwn = (path: string, text: string): string => {
  writeFileSync(path, text)
  return own(path, 0o600)
}

/** The server's settings, apart from those a fault needs. */
const defaults = { listen_addresses: "", timezone: "UTC", max_connections: "100", shared_buffers: "128MB" }

/** A server over a data directory that exists already. */
const clusterOver = Effect.fnUntraced(function* (data: string, { postgres }: Programs) {
  const socket = own(yield* temporaryDirectory, 0o755)
  let running: { readonly process: ChildProcess; readonly scope: Scope.Closeable } | undefined

  const end = (signal: (process: ChildProcess) => Effect.Effect<unknown>) =>
    Effect.suspend(() => {
      if (running === undefined) return Effect.void
      const { process, scope } = running
      running = undefined
      return Effect.andThen(signal(process), Effect.andThen(process.exited, Scope.close(scope, Exit.void)))
    })
  const launch = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
    const scope = yield* Scope.make()
    running = { scope, process: yield* Scope.provide(run(postgres, ["-D", data, ...args]), scope) }
  })
  const start = Effect.fnUntraced(function* (settings: Record<string, string> = {}) {
    const all = { ...defaults, unix_socket_directories: socket, ...settings }
    const args = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`])
    yield* launch(args)
    const ready = Effect.gen(function* () {
      const words = running?.process.exitCode() === undefined ? "" : running.process.lastWords()
      // Killed processes may not have ended yet.
      if (/pre-existing shared memory block|lock file/.test(words)) yield* launch(args)
      else if (words !== "") return yield* Effect.die(new Error(`PostgreSQL has ended: ${words}`))
      return Exit.isSuccess(yield* Effect.exit(askOnce(socket, "SELECT 1")))
    })
    yield* eventually("PostgreSQL answers", ready)
  })
  const signal = (name: NodeJS.Signals) => (child: ChildProcess) => Effect.sync(() => process.kill(child.pid, name))
  const kill = end(({ pid }) =>
    Effect.gen(function* () {
      const processes = yield* askOnce(socket, "SELECT pid FROM pg_stat_activity")
      for (const each of [pid, ...processes.map((row) => Number(row["pid"]))]) sendTo(each, "SIGKILL")
    })
  )
  const stop: Cluster["stop"] = (name = "SIGINT") => end(signal(name))
  yield* Effect.addFinalizer(() => stop("SIGQUIT"))
  return {
    url: `postgres://${user}@localhost/postgres?host=${encodeURIComponent(socket)}`,
    socket,
    data,
    start,
    stop,
    hasEnded: () => running?.process.exitCode() !== undefined,
    kill,
    query: (text) => askOnce(socket, text)
  } satisfies Cluster
})

/** Signals a process that may have ended by now. */
export const sendTo = (pid: number, signal: NodeJS.Signals): void => {
  try {
    process.kill(pid, signal)
  } catch {
    return
  }
}

export interface ClusterOptions {
  readonly binaries?: Programs
  /** The parent of the data directory; by default, a temporary directory. */
  readonly parent?: string
  readonly initdb?: ReadonlyArray<string>
}

/** A new server, not yet started. */
export const newCluster = Effect.fnUntraced(function* ({ binaries, initdb = [], parent }: ClusterOptions = {}) {
  const programs = binaries ?? (yield* locate())
  const data = ownDirectory(join(parent ?? (yield* temporaryDirectory), "data"))
  const args = [`--pgdata=${data}`, "--auth=trust", `--username=${user}`, "--encoding=UTF8", "--locale=C"]
  const process = yield* Effect.scoped(
    Effect.tap(run(programs.initdb, [...args, "--no-instructions", ...initdb]), ({ exited }) => exited)
  )
  if (process.exitCode() !== 0) return yield* Effect.die(new Error(`initdb: ${process.lastWords()}`))
  return yield* clusterOver(data, programs)
})

/** A second server over a copy of the files of one that is stopped. */
export const copyOf = Effect.fnUntraced(function* ({ data }: Cluster) {
  const copy = join(yield* temporaryDirectory, "data")
  const { code, stderr } = yield* runProgram("cp", ["-pR", data, copy])
  if (code !== 0) return yield* Effect.die(new Error(`cp: ${stderr}`))
  return yield* clusterOver(copy, yield* locate())
})
