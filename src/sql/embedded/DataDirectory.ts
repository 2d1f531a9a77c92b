import { Effect, Logger } from "effect"
import { createHash } from "node:crypto"
import {
  chmodSync,
  closeSync,
  fsyncSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  statSync
} from "node:fs"
import { rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { codeOf, EmbeddedPostgresError, type PostgresBinaries, postgresUser, run } from "./PostgresBinaries.ts"

export interface DataDirectory {
  /** PostgreSQL's own data directory. */
  readonly cluster: string
  /** The directory of the socket: PostgreSQL asks for no password, so whoever can enter it controls the database. */
  readonly socket: string
}

type Programs = Pick<PostgresBinaries, "initdb" | "postgres">

/** Creates BYOK_DATA_DIR and initialises its database, if needed. */
export const prepare = Effect.fnUntraced(function* (directory: string, binaries: Programs) {
  const root = yield* attempt(() => createRoot(resolve(directory)))
  if (postgresUser !== undefined) yield* checkReach(root, binaries)
  const cluster = join(root, "postgres")
  const socket = yield* socketDirectory(root)
  if (yield* attempt(() => isEmpty(cluster))) {
    yield* announce
    yield* initialise(root, cluster, binaries)
  }
  yield* discardTemporary(root)
  return { cluster, socket } satisfies DataDirectory
})

/** A program that embeds the service keeps its standard output to itself. */
const announce = Effect.provideService(
  Effect.logInfo("Preparing the embedded database, which takes a few seconds"),
  Logger.LogToStderr,
  true
)

const attempt = <A>(change: () => A) =>
  Effect.try({
    try: change,
    catch: (error) => EmbeddedPostgresError.of(`BYOK_DATA_DIR must be a writable directory; found ${codeOf(error)}.`)
  })

/** PostgreSQL's user may pass through a directory owned by root, but not list it. */
const createRoot = (path: string) => {
  const mode = postgresUser === undefined ? 0o700 : 0o711
  const first = mkdirSync(path, { recursive: true, mode })
  for (let created = path; first !== undefined && created.startsWith(first); created = dirname(created)) {
    chmodSync(created, mode)
  }
  const found = statSync(path)
  if (postgresUser !== undefined && found.uid === 0 && (found.mode & 0o001) === 0) {
    chmodSync(path, (found.mode & 0o7777) | 0o011)
  }
  return realpathSync(path)
}

const checkReach = Effect.fnUntraced(function* (root: string, { postgres }: Programs) {
  const script = 'cd -- "$1" || exit 3; test -x "$2" || exit 4'
  const { code, lastWords } = yield* run("/bin/sh", ["-c", script, "sh", root, postgres])
  if (code === 0) return
  const user = `user ${postgresUser?.uid}`
  const wrong =
    code === 3
      ? `as ${user} it cannot reach the directory: choose one that every user can reach`
      : code === 4
        ? `as ${user} it cannot execute its programs: install the service where every user can read it, or run it as a user other than root`
        : `this process cannot switch to ${user} (${lastWords}): run the service as a user other than root`
  return yield* EmbeddedPostgresError.of(
    `BYOK_DATA_DIR cannot be used: PostgreSQL refuses to run as root, and ${wrong}.`
  )
})

const isEmpty = (directory: string) => {
  try {
    return readdirSync(directory).length === 0
  } catch (error) {
    if (codeOf(error) === "ENOENT") return true
    throw error
  }
}

const temporaryName = "postgres.initdb-"

/** Whichever process is first moves a complete database into place; the others use that one. */
const initialise = Effect.fnUntraced(function* (root: string, cluster: string, { initdb }: Programs) {
  const temporary = yield* attempt(() => {
    const path = mkdtempSync(join(root, temporaryName))
    if (postgresUser !== undefined) lchownSync(path, postgresUser.uid, postgresUser.gid)
    return path
  })
  const { code, lastWords } = yield* run(initdb, [
    `--pgdata=${temporary}`,
    "--auth=trust",
    "--username=byok",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions"
  ])
  if (!(yield* attempt(() => isEmpty(cluster)))) return
  if (code !== 0) {
    return yield* EmbeddedPostgresError.of(
      code === null || code === 126 || code === 127
        ? "The embedded PostgreSQL does not run on this system: set DATABASE_URL to the PostgreSQL to use."
        : "PostgreSQL could not create its database in BYOK_DATA_DIR:",
      lastWords
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
  const parent = openSync(dirname(cluster), "r")
  fsyncSync(parent)
  closeSync(parent)
}

/** Once there is a database, no other initdb is needed: its service was killed, or will use the one that is there. */
const discardTemporary = Effect.fnUntraced(function* (root: string) {
  const found = yield* attempt(() => readdirSync(root).filter((name) => name.startsWith(temporaryName)))
  yield* Effect.forEach(found, (name) => {
    const removed = rm(join(root, name), { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
    return Effect.promise(() => removed.catch(() => undefined))
  })
})

/** The socket's name, which clients derive from port 5432. */
export const socketName = ".s.PGSQL.5432"

/** A socket's path is limited to 107 bytes on Linux and 103 on macOS. */
const fits = (directory: string) => Buffer.byteLength(join(directory, socketName)) <= 103

/** Creates the socket's directory: in the data directory, or in a temporary one if the path would be too long. */
export const socketDirectory = (root: string): Effect.Effect<string, EmbeddedPostgresError> =>
  Effect.try({
    try: () => {
      const hash = createHash("sha256").update(root).digest("hex").slice(0, 16)
      const places = [join(root, "socket"), join(tmpdir(), `byok-${hash}`), `/tmp/byok-${hash}`]
      const place = places.find(fits) ?? `/tmp/byok-${hash}`
      ensurePrivate(place)
      return place
    },
    catch: (error) =>
      EmbeddedPostgresError.of(
        `The embedded PostgreSQL's socket cannot be created: ${codeOf(error) || (error as Error).message}.`
      )
  })

const ensurePrivate = (directory: string) => {
  const owner = postgresUser?.uid ?? process.getuid?.()
  try {
    mkdirSync(directory, { mode: 0o700 })
    chmodSync(directory, 0o700)
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw error
  }
  const found = lstatSync(directory)
  if (
    !found.isDirectory() ||
    (found.mode & 0o777) !== 0o700 ||
    (found.uid !== owner && found.uid !== process.getuid?.())
  ) {
    throw new Error(`${directory} exists but is not a directory that only PostgreSQL's user may enter; remove it`)
  }
  if (postgresUser !== undefined) lchownSync(directory, postgresUser.uid, postgresUser.gid)
}
