import { PgConnection } from "@effect/sql-pg"
import { Effect, Exit, Schedule, Scope } from "effect"
import { readFileSync, rmSync } from "node:fs"
import { Socket } from "node:net"
import { join } from "node:path"
import { applicationName } from "../connection/Database.ts"
import { explainFailure, failureOf } from "../connection/DatabaseErrors.ts"
import { prepare, socketName } from "./DataDirectory.ts"
import { EmbeddedPostgresError, locate, type PostgresBinaries, run } from "./PostgresBinaries.ts"

/** Where and as whom to connect; `host` is the directory of the socket. */
export interface Endpoint {
  readonly host: string
  readonly username: "byok"
  readonly database: "postgres"
}

/** A service excludes other services from its directory; commands share the directory. */
export type User = "service" | "command"

/**
 * Ensures that PostgreSQL serves `directory` until the scope closes: uses the server that runs there or starts one, and
 * restarts it whenever it ends. The last user to leave stops the server; if killed, that user leaves it running.
 */
export const start = Effect.fnUntraced(function* (directory: string, user: User = "command") {
  const binaries = yield* locate()
  const cluster = yield* prepare(directory, binaries)
  const openOrStart = makeOpenOrStart(cluster, serverOf(cluster, binaries), user)
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
  const endpoint: Endpoint = { host: cluster, username: "byok", database: "postgres" }
  return endpoint
})

interface Server {
  /** Starts the server and waits until it accepts connections, or fails with the end of its log. */
  readonly start: Effect.Effect<unknown, string>
  /** Returns whether the server has stopped; false if none runs. */
  readonly stop: Effect.Effect<boolean>
  readonly isStarting: () => boolean
}

/** The server of a data directory, controlled by `pg_ctl`. */
const serverOf = (cluster: string, { pg_ctl }: PostgresBinaries): Server => {
  const path = (name: string) => join(cluster, name)
  const read = (name: string) => {
    try {
      return readFileSync(path(name), "utf8")
    } catch {
      return ""
    }
  }
  // Passes the directory in a variable, because pg_ctl passes arguments through a shell.
  const control = (...args: ReadonlyArray<string>) =>
    run(pg_ctl, [...args, "--silent", "--wait"], { cwd: cluster, variables: { PGDATA: cluster } })
  const stop = Effect.gen(function* () {
    if (isStale(read("postmaster.pid"))) return false
    const { code } = yield* control("stop", "--mode=fast", "--timeout=10")
    return code === 0 || (yield* control("stop", "--mode=immediate", "--timeout=10")).code === 0
  })
  const start = Effect.gen(function* () {
    if (isStale(read("postmaster.pid"))) rmSync(path("postmaster.pid"), { force: true })
    rmSync(path("server.log"), { force: true })
    const args = ["--timeout=3600", "--log=server.log", `--options=${options}`]
    const { code, errorOutput } = yield* control("start", ...args)
    if (code !== 0)
      return yield* Effect.fail(read("server.log").trim().split("\n").slice(-20).join("\n") || errorOutput)
  })
  // An interrupted pg_ctl may leave a server that has no lock file yet: `stop` finds it only later.
  const untilStopped = Effect.repeat(stop, { until: (stopped) => stopped, times: 20, schedule: Schedule.spaced(50) })
  return {
    start: Effect.onInterrupt(start, () => untilStopped),
    stop,
    // The eighth line of the lock file has the state of the server.
    isStarting: () => read("postmaster.pid").split("\n")[7]?.trim() === "starting"
  }
}

/** Settings of the server, quoted for the shell in which `pg_ctl` starts the server. */
const options = [
  "listen_addresses=",
  "port=5432",
  "unix_socket_directories=.",
  "unix_socket_permissions=0700",
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

/**
 * Whether the PID in a lock file is of a zombie or of another program, as in a restarted container, where `pg_ctl`
 * would stop that program. False if it is of no process.
 */
const isStale = (lock: string) => {
  try {
    return !/^\d+ \(postgres\) [^XZ]/.test(readFileSync(`/proc/${parseInt(lock)}/stat`, "latin1"))
  } catch {
    return false
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

/** Connects to the server. Fails if `user` is a service and another one still uses the directory after 2 seconds. */
const openMembership = (host: string, server: Server, user: User) =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const socket = new Socket()
    const closed = new Promise((resolve) => socket.once("close", resolve))
    const connection = yield* PgConnection.make({
      ...{ username: "byok", database: "postgres", applicationName },
      stream: () => socket.connect(join(host, socketName))
    }).pipe(
      Scope.provide(scope),
      Effect.onError(() => Scope.close(scope, Exit.void))
    )
    const call = (text: string) => Effect.map(connection.queryValues(`SELECT pg_${text}`), ([row]) => row?.[0] === true)
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
const stillOccupied = /lock file .* (already exists|is empty)|pre-existing shared memory block|could not bind/

/** How long a stopping server, or its orphans, may delay the next start, in milliseconds. */
const startTimeout = 15_000

/** Opens a membership, and starts the server first if it does not run. */
const makeOpenOrStart = (host: string, server: Server, user: User): Effect.Effect<Membership, EmbeddedPostgresError> =>
  Effect.suspend(() => {
    let startedHere = false
    return Effect.gen(function* () {
      for (let deadline = Date.now() + startTimeout; ; yield* Effect.sleep(50)) {
        const opened = yield* Effect.result(openMembership(host, server, user))
        if (opened._tag === "Success") return opened.success
        const failure = opened.failure
        if (failure._tag === "EmbeddedPostgresError") return yield* failure
        // The server starts or stops, or too many clients connect at once.
        const isRunning = failure.sqlstate === "57P03" || failure.sqlstate === "EAGAIN"
        if (!isRunning && !failure.isTransient) {
          return yield* EmbeddedPostgresError.of(explainFailure("The embedded database", failure, 0))
        }
        if (isRunning && server.isStarting()) deadline = Date.now() + startTimeout
        const started = isRunning ? undefined : yield* Effect.result(server.start)
        startedHere ||= started?._tag === "Success"
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
