import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { setTimeout } from "node:timers/promises"
import type { DataDirectory } from "./DataDirectory.ts"
import { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"
import { run, type LeashedProcess } from "./LeashedProcess.ts"
import type { PostgresBinaries } from "./PostgresBinaries.ts"
import { socketName } from "./SocketDirectory.ts"

/** Waits in real time, whatever the Effect clock says: other processes run in real time. */
export const pause = (milliseconds: number, options: { readonly ref?: boolean } = {}) =>
  Effect.promise((signal) => setTimeout(milliseconds, undefined, { ...options, signal }))

/** Accepts connections until `gone` completes. */
interface Postmaster {
  readonly gone: Effect.Effect<void>
}

/** How long a start may make no progress: a postmaster that is stopping, or its orphans, may have to exit first. */
const startTimeout = 15_000

const stillOccupied = /lock file .* (already exists|is empty)|pre-existing shared memory block|could not bind/

/** The postmaster that already serves this directory, or a new one that lives as long as the scope. */
export const obtain = Effect.fnUntraced(function* (
  { cluster }: DataDirectory,
  socket: string,
  { postgres }: PostgresBinaries
) {
  const address = join(socket, socketName)
  let own: LeashedProcess | undefined
  for (let deadline = Date.now() + startTimeout; ; yield* pause(10)) {
    const lock = readLockFile(cluster)
    const answers = lock !== undefined && (yield* accepts(address))
    if (answers && lock.status === "ready") {
      return { gone: own?.pid === lock.pid ? released(own) : deserted(address) } satisfies Postmaster
    }
    const timedOut = Date.now() > deadline
    const code = own?.exitCode()
    if (timedOut || (code !== undefined && !stillOccupied.test(own?.lastWords() ?? ""))) {
      return yield* EmbeddedPostgresError.of(
        "PostgreSQL could not start in BYOK_DATA_DIR:",
        own?.lastWords() ?? "another instance is there but does not answer"
      )
    }
    if (answers && lock.status === "starting") deadline = Date.now() + startTimeout
    if (code !== undefined || (own === undefined && !answers)) {
      own = yield* run(postgres, settings(cluster, socket), isStale(lock) ? { PG_GRANDPARENT_PID: `${lock.pid}` } : {})
    }
  }
})

const settings = (cluster: string, socket: string) =>
  [
    "listen_addresses=",
    "port=5432",
    `unix_socket_directories="${socket.replaceAll('"', '""')}"`,
    "unix_socket_permissions=0700",
    "max_connections=100",
    "shared_buffers=128MB",
    "timezone=UTC",
    // Errors quote values, which must not even reach the output kept in our memory.
    "log_min_messages=log",
    "log_min_error_statement=panic",
    "log_error_verbosity=terse",
    "log_parameter_max_length_on_error=0",
    "log_line_prefix="
  ].reduce<ReadonlyArray<string>>((args, setting) => [...args, "-c", setting], ["-D", cluster])

interface LockFile {
  readonly pid: number
  readonly status: string | undefined
}

const readLockFile = (cluster: string): LockFile | undefined => {
  try {
    const lines = readFileSync(join(cluster, "postmaster.pid"), "utf8").split("\n")
    return { pid: Number(lines[0]), status: lines[7]?.trim() }
  } catch {
    return undefined
  }
}

/**
 * Whether the pid in the lock file now belongs to a zombie or to another program, as happens when a container restarts.
 * PostgreSQL takes over such a file if it is told that the pid is its grandparent's.
 */
const isStale = (lock: LockFile | undefined): lock is LockFile => {
  try {
    const stat = readFileSync(`/proc/${lock?.pid}/stat`, "latin1")
    return !/^\d+ \(postgres\) [^XZ]/.test(stat)
  } catch {
    return false
  }
}

const accepts = (address: string) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(address)
    const settle = (answer: boolean) => {
      socket.destroy()
      resume(Effect.succeed(answer))
    }
    socket.once("connect", () => settle(true))
    // A full backlog means that somebody is listening.
    socket.on("error", (error: NodeJS.ErrnoException) => settle(error.code === "EAGAIN"))
    return Effect.sync(() => socket.destroy())
  })

const released = (own: LeashedProcess) =>
  Effect.suspend(() => {
    own.unref()
    return Effect.asVoid(own.exited)
  })

/** Probes the socket: the pid may be a zombie's, or unknown in our container. */
const deserted = Effect.fnUntraced(function* (address: string) {
  while (yield* accepts(address)) yield* pause(250, { ref: false })
})
