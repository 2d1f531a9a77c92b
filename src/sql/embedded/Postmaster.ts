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

/** Waits in real time, even where a test has stopped the clock: the processes waited for do not know of that. */
export const pause = (milliseconds: number, options: { readonly ref?: boolean } = {}) =>
  Effect.promise((signal) => setTimeout(milliseconds, undefined, { ...options, signal }))

/** It accepts connections, and will until `gone` returns. */
interface Postmaster {
  readonly gone: Effect.Effect<void>
}

/** How long a start may make no progress, so that one that is just ending, or its orphans, can leave first. */
const patience = 15_000

const stillOccupied = /lock file .* (already exists|is empty)|pre-existing shared memory block|could not bind/

/** The one that serves this directory already, or else one that lives as long as the scope. */
export const obtain = Effect.fnUntraced(function* (
  { cluster }: DataDirectory,
  socket: string,
  { postgres }: PostgresBinaries
) {
  const address = join(socket, socketName)
  let own: LeashedProcess | undefined
  for (let deadline = Date.now() + patience; ; yield* pause(10)) {
    const lock = readLockFile(cluster)
    const answers = lock !== undefined && (yield* accepts(address))
    if (answers && lock.status === "ready") {
      return { gone: own?.pid === lock.pid ? released(own) : deserted(address) } satisfies Postmaster
    }
    const isLate = Date.now() > deadline
    const code = own?.exitCode()
    if (isLate || (code !== undefined && !stillOccupied.test(own?.lastWords() ?? ""))) {
      return yield* EmbeddedPostgresError.of(
        "PostgreSQL cannot be started in BYOK_DATA_DIR:",
        own?.lastWords() ?? "another one is there and does not answer"
      )
    }
    if (answers && lock.status === "starting") deadline = Date.now() + patience
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
    // What it says stays in our memory only, and errors quote values: so not even there.
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
 * Whether the number in the lock file now belongs to a zombie or to something else, as happens when a container starts
 * anew. PostgreSQL takes such a file over when it hears that the number is that of its grandparent.
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
    // A queue that is full is one behind which somebody listens.
    socket.on("error", (error: NodeJS.ErrnoException) => settle(error.code === "EAGAIN"))
    return Effect.sync(() => socket.destroy())
  })

const released = (own: LeashedProcess) =>
  Effect.suspend(() => {
    own.unref()
    return Effect.asVoid(own.exited)
  })

/** Asks the socket, since the number of a process may be that of a zombie, or unknown in our container. */
const deserted = Effect.fnUntraced(function* (address: string) {
  while (yield* accepts(address)) yield* pause(250, { ref: false })
})
