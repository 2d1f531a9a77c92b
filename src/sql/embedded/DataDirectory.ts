import { Effect, Logger, type Redacted, Schedule } from "effect"
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmdirSync,
  statSync
} from "node:fs"
import { dirname, join, resolve } from "node:path"
import { otherWriterOf } from "../../runtime/otherWriter.ts"
import { systemFault } from "../../runtime/systemFault.ts"
import { openPassword, requirePassword } from "./Password.ts"
import { codeOf, EmbeddedPostgresError, type PostgresBinaries, postgresUser, run } from "./PostgresBinaries.ts"

/** The socket's name, which clients derive from port 5432. */
export const socketName = ".s.PGSQL.5432"

/** A socket's path is limited to 107 bytes on Linux and 103 on macOS. */
const maxSocketPath = 103

type Programs = Pick<PostgresBinaries, "initdb" | "postgres">

/**
 * Creates BYOK_DATA_DIR and initialises its database, if needed. Returns PostgreSQL's directory, which also holds its
 * socket, and its password. The directory of root has only files of root, beside PostgreSQL's own directory.
 */
export const prepare = Effect.fnUntraced(function* (directory: string, binaries: Programs) {
  const root = yield* attempt(() => createRoot(resolve(directory)))
  if (postgresUser !== undefined) yield* checkReach(root, binaries)
  const cluster = join(root, "postgres")
  const excessBytes = Buffer.byteLength(join(cluster, socketName)) - maxSocketPath
  if (excessBytes > 0) {
    return yield* EmbeddedPostgresError.of(
      `BYOK_DATA_DIR must be a path that is at least ${excessBytes} bytes shorter, for PostgreSQL's socket in it.`
    )
  }
  const password = yield* openPassword(root)
  if (yield* attempt(() => isEmpty(cluster))) {
    yield* announce
    yield* initialise(root, cluster, binaries, password)
  }
  yield* discardTemporary(root)
  return { cluster, password }
})

/** Logs to standard error: standard output belongs to the program that embeds the service. */
const announce = Effect.provideService(
  Effect.logInfo("Preparing the embedded database, which takes a few seconds"),
  Logger.LogToStderr,
  true
)

/** Accesses BYOK_DATA_DIR. Reports an exception as a fault of the directory. */
const attempt = <A>(access: () => A) =>
  Effect.try({
    try: access,
    catch: (error) =>
      error instanceof EmbeddedPostgresError
        ? error
        : EmbeddedPostgresError.of(`BYOK_DATA_DIR must be a writable directory: ${systemFault(error)}.`)
  })

/** Throws if another user could make the path name something else: this process changes modes and owners below it. */
const refuseOthers = (path: string): void => {
  const other = otherWriterOf(path)
  if (other === undefined) return
  throw EmbeddedPostgresError.of(
    `BYOK_DATA_DIR must be a directory that only root and this user can change; found that ${other.by} can change ${other.path}.`
  )
}

/** Creates a directory and its parents. With `recursive`, Node.js would loop below /proc. */
const createDirectory = (path: string, mode: number): void => {
  try {
    mkdirSync(path, { mode })
    refuseOthers(path)
    chmodSync(path, mode)
  } catch (error) {
    if (codeOf(error) === "EEXIST" && statSync(path).isDirectory()) return
    if (codeOf(error) !== "ENOENT" || existsSync(dirname(path))) throw error
    createDirectory(dirname(path), mode)
    createDirectory(path, mode)
  }
}

/** Creates the data directory. PostgreSQL's user may pass through a directory of root, but not list it. */
const createRoot = (path: string) => {
  const mode = postgresUser === undefined ? 0o700 : 0o711
  createDirectory(path, mode)
  refuseOthers(path)
  const { mode: actualMode } = statSync(path)
  if (postgresUser !== undefined && (actualMode & 0o001) === 0) {
    chmodSync(path, (actualMode & 0o7777) | 0o011)
  }
  return realpathSync(path)
}

/** Fails unless PostgreSQL's user can enter the directory and execute PostgreSQL. */
const checkReach = Effect.fnUntraced(function* (root: string, { postgres }: Programs) {
  const { code } = yield* run("/bin/sh", ["-c", 'cd -- "$1" && test -x "$2"', "sh", root, postgres])
  if (code === 0) return
  return yield* EmbeddedPostgresError.of(
    `BYOK_DATA_DIR cannot be used: PostgreSQL refuses to run as root, and user ${postgresUser?.uid} cannot reach the directory or execute PostgreSQL: choose a directory that every user can reach and install the service where every user can read it, or run it as another user than root.`
  )
})

/** Whether a directory is empty or missing. */
const isEmpty = (directory: string) => {
  try {
    return readdirSync(directory).length === 0
  } catch (error) {
    if (codeOf(error) === "ENOENT") return true
    throw error
  }
}

const temporaryPrefix = "postgres.initdb-"

/** Creates a database in a temporary directory, and moves it into place unless another process was first. */
const initialise = Effect.fnUntraced(function* (
  root: string,
  cluster: string,
  { initdb, postgres }: Programs,
  password: Redacted.Redacted
) {
  const temporary = yield* attempt(() => {
    const path = mkdtempSync(join(root, temporaryPrefix))
    if (postgresUser !== undefined) lchownSync(path, postgresUser.uid, postgresUser.gid)
    return path
  })
  const initialised = yield* run(initdb, [
    `--pgdata=${temporary}`,
    "--auth=reject",
    "--username=byok",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions"
  ])
  const { code, errorOutput } =
    initialised.code === 0 ? yield* requirePassword(temporary, postgres, password) : initialised
  if (!(yield* attempt(() => isEmpty(cluster)))) return
  if (code !== 0) {
    return yield* EmbeddedPostgresError.of(
      code === null || code === 126 || code === 127
        ? "The embedded PostgreSQL does not run on this system: set DATABASE_URL to the PostgreSQL to use."
        : "PostgreSQL could not create its database in BYOK_DATA_DIR:",
      errorOutput
    )
  }
  yield* attempt(() => putIntoPlace(temporary, cluster))
})

const putIntoPlace = (temporary: string, cluster: string) => {
  try {
    renameSync(temporary, cluster)
  } catch (error) {
    if (isEmpty(cluster)) throw error
  }
  // Makes the new name durable.
  const parent = openSync(dirname(cluster), "r")
  fsyncSync(parent)
  closeSync(parent)
}

/** Deletes leftover directories of initdb: their services were killed, or will use the database in place. */
const discardTemporary = Effect.fnUntraced(function* (root: string) {
  const leftovers = yield* attempt(() => readdirSync(root).filter((name) => name.startsWith(temporaryPrefix)))
  yield* Effect.forEach(leftovers, (name) => discard(join(root, name)))
})

/** Deletes a directory, whose entries only PostgreSQL's user deletes: that user could put links to root's among them. */
const discard = (path: string) =>
  Effect.andThen(
    run("/bin/sh", ["-c", "rm -rf -- * .[!.]*"], { cwd: path }),
    Effect.try(() => rmdirSync(path))
  ).pipe(Effect.retry({ times: 10, schedule: Schedule.spaced(50) }), Effect.ignore)
