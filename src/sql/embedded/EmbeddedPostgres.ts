import { PgConnection } from "@effect/sql-pg"
import { Data, Effect, Exit, type Redacted, Schedule, Scope } from "effect"
import { closeSync, constants, fstatSync, openSync, readFileSync, readSync, statSync, unlinkSync } from "node:fs"
import { Socket } from "node:net"
import { join } from "node:path"
import { applicationName } from "../connection/Database.ts"
import { explainFailure, failureOf } from "../connection/DatabaseErrors.ts"
import { prepare, socketName } from "./DataDirectory.ts"
import { requirePassword } from "./Password.ts"
import { codeOf, EmbeddedPostgresError, locate, type PostgresBinaries, postgresUser, run } from "./PostgresBinaries.ts"

/** Where and as whom to connect; `host` is the directory of the socket. */
export interface Endpoint {
  readonly host: string
  readonly username: "byok"
  readonly database: "postgres"
  readonly password: Redacted.Redacted
}

/** A service excludes other services from its directory; commands share the directory. */
export type User = "service" | "command"

/**
 * Ensures that PostgreSQL serves `directory` until the scope closes: uses the server that runs there or starts one, and
 * restarts it whenever it ends. The last user to leave stops the server; if killed, that user leaves it running.
 */
export const start = Effect.fnUntraced(function* (directory: string, user: User = "command") {
  const binaries = yield* locate()
  const { cluster, password } = yield* prepare(directory, binaries)
  const endpoint: Endpoint = { host: cluster, username: "byok", database: "postgres", password }
  const openOrStart = makeOpenOrStart(endpoint, serverOf(endpoint, binaries), user)
  let membership = yield* openOrStart
  yield* Effect.addFinalizer(() => membership.leave)
  const restoreMembership = Effect.gen(function* () {
    yield* membership.lost
    yield* Effect.logWarning("The embedded PostgreSQL has exited and is being restarted")
    membership = yield* openOrStart.pipe(
      Effect.tapError(({ message }) => Effect.logWarning(message)),
      Effect.retry(Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("5 seconds")]))
    )
  })
  yield* Effect.forkScoped(Effect.forever(restoreMembership))
  return endpoint
})

interface Server {
  /** Starts the server and waits until it accepts connections, or fails with the end of its log. */
  readonly start: Effect.Effect<unknown, string>
  /** Returns whether the server has stopped; false if none runs. */
  readonly stop: Effect.Effect<boolean>
  /** Makes the stopped server ask for its password, or fails with the end of its log. */
  readonly requirePassword: Effect.Effect<void, string>
  readonly isStarting: () => boolean
}

/** The server of a data directory, controlled by `pg_ctl`. */
const serverOf = ({ host: cluster, password }: Endpoint, { pg_ctl, postgres }: PostgresBinaries): Server => {
  const read = (name: string) => readEnd(join(cluster, name))
  // Passes the directory in a variable, because pg_ctl passes arguments through a shell.
  const control = (...args: ReadonlyArray<string>) =>
    run(pg_ctl, [...args, "--silent", "--wait"], { cwd: cluster, variables: { PGDATA: cluster } })
  const stop = Effect.gen(function* () {
    if (isStale(cluster, read("postmaster.pid"))) return false
    const { code } = yield* control("stop", "--mode=fast", "--timeout=10")
    return code === 0 || (yield* control("stop", "--mode=immediate", "--timeout=10")).code === 0
  })
  const start = Effect.gen(function* () {
    const lock = read("postmaster.pid")
    if (isAbandoned(lock) || isStale(cluster, lock)) unlink(join(cluster, "postmaster.pid"))
    unlink(join(cluster, "server.log"))
    const args = ["--timeout=3600", "--log=server.log", `--options=${options}`]
    const { code, errorOutput } = yield* control("start", ...args)
    if (code !== 0)
      return yield* Effect.fail(read("server.log").text.trim().split("\n").slice(-20).join("\n") || errorOutput)
  })
  // An interrupted pg_ctl may leave a server that has no lock file yet: `stop` finds it only later.
  const untilStopped = Effect.repeat(stop, { until: (stopped) => stopped, times: 20, schedule: Schedule.spaced(50) })
  return {
    start: Effect.onInterrupt(start, () => untilStopped),
    stop,
    requirePassword: Effect.flatMap(requirePassword(cluster, postgres, password), ({ code, errorOutput }) =>
      code === 0 ? Effect.void : Effect.fail(errorOutput)
    ),
    // The eighth line of the lock file has the state of the server.
    isStarting: () => read("postmaster.pid").text.split("\n")[7]?.trim() === "starting"
  }
}

/** Settings of the server, quoted for the shell in which `pg_ctl` starts the server. */
const options = [
  "listen_addresses=",
  "port=5432",
  "unix_socket_directories=.",
  "unix_socket_permissions=0700",
  "hba_file=pg_hba.conf",
  "max_connections=100",
  "shared_buffers=128MB",
  "timezone=UTC",
  // Errors quote values, which must not reach the log.
  "log_min_messages=log",
  "log_min_error_statement=panic",
  "log_error_verbosity=terse",
  "log_parameter_max_length_on_error=0",
  "log_checkpoints=off",
  "log_line_prefix="
]
  .map((setting) => `-c '${setting}'`)
  .join(" ")

/** The end of a file of PostgreSQL. */
interface FileEnd {
  readonly text: string
  /** When the file was written, in milliseconds; undefined if it is missing or not PostgreSQL's. */
  readonly writtenAt: number | undefined
}

const maxBytes = 64 * 1024

/**
 * Reads the end of a file in PostgreSQL's directory, where PostgreSQL's user may have put a link to another's file:
 * reads no link, and only a file of that user.
 */
const readEnd = (path: string): FileEnd => {
  let descriptor
  try {
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    const stats = fstatSync(descriptor)
    const owner = postgresUser?.uid ?? process.geteuid?.()
    if (!stats.isFile() || stats.nlink !== 1 || stats.uid !== owner) return { text: "", writtenAt: undefined }
    const bytes = Buffer.alloc(Math.min(stats.size, maxBytes))
    const length = readSync(descriptor, bytes, 0, bytes.length, stats.size - bytes.length)
    return { text: bytes.toString("utf8", 0, length), writtenAt: stats.mtimeMs }
  } catch {
    return { text: "", writtenAt: undefined }
  } finally {
    if (descriptor !== undefined) closeSync(descriptor)
  }
}

/** Removes a name from PostgreSQL's directory, and not what a link there leads to. */
const unlink = (path: string) => {
  try {
    unlinkSync(path)
  } catch {
    // pg_ctl reports what is in its way.
    return
  }
}

/** Whether a lock file is still empty after 10 seconds: PostgreSQL, which writes it at once, was killed meanwhile. */
const isAbandoned = ({ text, writtenAt = Infinity }: FileEnd) => text === "" && writtenAt < Date.now() - 10_000

/**
 * Whether the PID in a lock file is of a zombie, of another program or of the PostgreSQL of another directory, as in a
 * restarted container, where `pg_ctl` would stop that program. False if it is of no process.
 */
const isStale = (cluster: string, { text }: FileEnd) => {
  const process = `/proc/${parseInt(text)}`
  try {
    if (!/^\d+ \(postgres\) [^XZ]/.test(readFileSync(`${process}/stat`, "latin1"))) return true
    const [served, own] = [statSync(`${process}/cwd`), statSync(cluster)]
    return served.dev !== own.dev || served.ino !== own.ino
  } catch (error) {
    // The process of another user.
    return codeOf(error) === "EACCES"
  }
}

/** A connection that marks the directory as in use. */
interface Membership {
  /** Completes when the connection ends, usually with the server. */
  readonly lost: Effect.Effect<void>
  /** Disconnects, and stops the server if nobody else uses it. */
  readonly leave: Effect.Effect<void>
}

/** All users of a directory share the first lock; a service holds the second. PostgreSQL frees those of dead users. */
const [usersLock, serviceLock] = ["1652128619, 1", "1652128619, 2"]

/** The server let a client in without the password. */
class PasswordNotRequired extends Data.TaggedError("PasswordNotRequired") {}

/**
 * Connects to the server. Fails if the server let this process in without the password, or if `user` is a service and
 * another one still uses the directory after 2 seconds.
 */
const openMembership = ({ database, host, password, username }: Endpoint, server: Server, user: User) =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const socket = new Socket()
    const closed = new Promise((resolve) => socket.once("close", resolve))
    const connection = yield* PgConnection.make({
      ...{ username, database, password, applicationName },
      stream: () => socket.connect(join(host, socketName))
    }).pipe(
      Scope.provide(scope),
      Effect.onError(() => Scope.close(scope, Exit.void))
    )
    const is = (text: string) => Effect.map(connection.queryValues(`SELECT ${text}`), ([row]) => row?.[0] === true)
    const call = (text: string) => is(`pg_${text}`)
    /** The last user is the one that can take the lock alone. Without an answer, assumes that it is the last. */
    const leave = Effect.gen(function* () {
      socket.ref()
      yield* call(`advisory_unlock_shared(${usersLock})`)
      return yield* call(`try_advisory_lock(${usersLock})`)
    }).pipe(
      Effect.timeout("5 seconds"),
      Effect.orElseSucceed(() => true),
      Effect.flatMap((isLast) => (isLast ? server.stop : Effect.void)),
      Effect.andThen(Scope.close(scope, Exit.void))
    )
    const enter = Effect.gen(function* () {
      yield* call(`advisory_lock_shared(${usersLock})`)
      if (!(yield* is("system_user LIKE 'scram-sha-256:%'"))) return yield* new PasswordNotRequired()
      if (user === "command") return
      const isOnlyService = yield* Effect.repeat(call(`try_advisory_lock(${serviceLock})`), {
        until: (isOnlyService) => isOnlyService,
        times: 40,
        schedule: Schedule.spaced(50)
      })
      if (!isOnlyService) return yield* EmbeddedPostgresError.of(inUse)
    })
    yield* Effect.onError(enter, () => leave)
    socket.unref()
    const lost = Effect.andThen(
      Effect.promise(() => closed),
      Scope.close(scope, Exit.void)
    )
    return { lost, leave } satisfies Membership
  }).pipe(Effect.mapError((error) => (error._tag === "SqlError" ? failureOf(error) : error)))

const inUse =
  "BYOK_DATA_DIR is in use by another service: stop that one or choose another directory. Several services can share a PostgreSQL that DATABASE_URL names."

/** What the log says if another server uses the directory, or has not quite ended. */
const stillOccupied = /(lock|PID) file .* (already exists|is empty)|pre-existing shared memory block|could not bind/

/** How long a stopping server, or its orphans, may delay the next start, in milliseconds. */
const startTimeout = 15_000

const passwordUnknown =
  "BYOK_DATA_DIR/postgres.password is not the password of the database there: stop every service and command that uses the directory, and try again."

/**
 * Opens a membership. Starts the server first if it does not run. If it does not ask for this password, as in the
 * directory of an earlier version or one whose password file was lost, makes it ask before it starts again.
 */
const makeOpenOrStart = (
  endpoint: Endpoint,
  server: Server,
  user: User
): Effect.Effect<Membership, EmbeddedPostgresError> =>
  Effect.suspend(() => {
    let startedHere = false
    return Effect.gen(function* () {
      for (let deadline = Date.now() + startTimeout; ; yield* Effect.sleep(50)) {
        const opened = yield* Effect.result(openMembership(endpoint, server, user))
        if (opened._tag === "Success") return opened.success
        const failure = opened.failure
        if (failure._tag === "EmbeddedPostgresError") return yield* failure
        if (failure._tag === "PasswordNotRequired" || failure.sqlstate === "28P01") {
          if (startedHere) yield* server.stop
          const required = yield* Effect.result(server.requirePassword)
          const log = required._tag === "Failure" ? required.failure : ""
          if (Date.now() <= deadline && (log === "" || stillOccupied.test(log))) continue
          return yield* EmbeddedPostgresError.of(passwordUnknown, log)
        }
        // The server starts or stops, or too many clients connect at once.
        const isRunning = failure.sqlstate === "57P03" || failure.sqlstate === "EAGAIN"
        if (!isRunning && !failure.isTransient) {
          return yield* EmbeddedPostgresError.of(explainFailure("The embedded database", failure, 0))
        }
        if (isRunning && server.isStarting()) deadline = Date.now() + startTimeout
        const started = isRunning ? undefined : yield* Effect.result(server.start)
        if (started?._tag === "Success" && !startedHere) {
          startedHere = true
          deadline = Date.now() + startTimeout
        }
        const log = started?._tag === "Failure" ? started.failure : ""
        if (Date.now() > deadline || (log !== "" && !stillOccupied.test(log))) {
          return yield* EmbeddedPostgresError.of(
            "PostgreSQL could not start in BYOK_DATA_DIR:",
            log || "another instance is there but does not answer"
          )
        }
      }
    }).pipe(Effect.onInterrupt(() => (startedHere ? server.stop : Effect.void)))
  })
