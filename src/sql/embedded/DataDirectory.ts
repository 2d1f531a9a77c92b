import { Effect, Logger } from "effect"
import { execFile } from "node:child_process"
import { randomBytes } from "node:crypto"
import {
  chmodSync,
  closeSync,
  fsyncSync,
  lchownSync,
  mkdirSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  statSync
} from "node:fs"
import { rm } from "node:fs/promises"
import { dirname, join, resolve } from "node:path"
import { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"
import { run, postgresUser } from "./LeashedProcess.ts"
import type { PostgresBinaries } from "./PostgresBinaries.ts"

export interface DataDirectory {
  readonly root: string
  /** The part that belongs to PostgreSQL. */
  readonly cluster: string
}

/** Creates BYOK_DATA_DIR and initialises its database, if needed. */
export const prepare = Effect.fnUntraced(function* (directory: string, binaries: PostgresBinaries) {
  const root = yield* attempt(() => createRoot(resolve(directory)))
  if (postgresUser !== undefined) yield* checkReach(root, binaries)
  const cluster = join(root, "postgres")
  yield* Effect.forEach(yield* attempt(() => findAbandoned(root)), discard)
  if (yield* attempt(() => isEmpty(cluster))) {
    yield* announce
    yield* Effect.scoped(initialise({ root, cluster }, binaries))
  }
  return { root, cluster } satisfies DataDirectory
})

/** A program that embeds the service keeps its standard output to itself. */
const announce = Effect.provideService(
  Effect.logInfo("Preparing the embedded database, which takes a few seconds"),
  Logger.LogToStderr,
  true
)

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code ?? ""

const attempt = <A>(change: () => A) =>
  Effect.try({
    try: change,
    catch: (error) => EmbeddedPostgresError.of(`BYOK_DATA_DIR must be a writable directory; found ${codeOf(error)}.`)
  })

const hasCode = (error: unknown, ...codes: ReadonlyArray<string>) => codes.includes(codeOf(error))

/** A directory owned by root lets PostgreSQL's user pass through, but not list it. */
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

const checkReach = (root: string, { postgres }: PostgresBinaries) =>
  Effect.callback<undefined, EmbeddedPostgresError>((resume) => {
    const script = 'cd -- "$1" || exit 3; test -x "$2" || exit 4'
    execFile("/bin/sh", ["-c", script, "sh", root, postgres], { cwd: "/", ...postgresUser }, (error) => {
      const user = `user ${postgresUser?.uid}`
      const wrong =
        error?.code === 3
          ? `as ${user} it cannot reach the directory: choose one that every user can reach`
          : error?.code === 4
            ? `as ${user} it cannot execute its programs: install the service where every user can read it, or run it as a user other than root`
            : `this process cannot switch to ${user} (${error?.code}): run the service as a user other than root`
      const sentence = `BYOK_DATA_DIR cannot be used: PostgreSQL refuses to run as root, and ${wrong}.`
      resume(error === null ? Effect.undefined : Effect.fail(EmbeddedPostgresError.of(sentence)))
    })
  })

const isEmpty = (directory: string) => {
  try {
    return readdirSync(directory).length === 0
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true
    throw error
  }
}

/** The first process moves a complete database into place; a second one finds it there and uses it. */
const initialise = Effect.fnUntraced(function* ({ cluster, root }: DataDirectory, { initdb }: PostgresBinaries) {
  const temporary = yield* Effect.acquireRelease(
    attempt(() => createTemporary(root)),
    discard
  )
  const process = yield* run(initdb, [
    `--pgdata=${temporary}`,
    "--auth=trust",
    "--username=byok",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions"
  ])
  const code = yield* process.exited
  if (code === 126 || code === 127) {
    return yield* EmbeddedPostgresError.of(
      "The embedded PostgreSQL does not run on this system: set DATABASE_URL to the PostgreSQL to use.",
      process.lastWords()
    )
  }
  if (code !== 0) {
    return yield* EmbeddedPostgresError.of(
      "PostgreSQL could not create its database in BYOK_DATA_DIR:",
      process.lastWords()
    )
  }
  yield* attempt(() => putIntoPlace(temporary, cluster))
})

const temporaryName = /^postgres\.initdb-(\d+)-/
const inProgress = new Set<string>()

const createTemporary = (root: string) => {
  const path = join(root, `postgres.initdb-${process.pid}-${randomBytes(6).toString("hex")}`)
  inProgress.add(path)
  mkdirSync(path, { mode: 0o700 })
  if (postgresUser !== undefined) lchownSync(path, postgresUser.uid, postgresUser.gid)
  return path
}

/** An initdb whose service was killed may still be writing; the next start removes what it leaves behind. */
const discard = (path: string) =>
  Effect.promise(async () => {
    inProgress.delete(path)
    await rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }).catch(() => undefined)
  })

const putIntoPlace = (temporary: string, cluster: string) => {
  try {
    renameSync(temporary, cluster)
  } catch (error) {
    if (!hasCode(error, "ENOTEMPTY", "EEXIST")) throw error
  }
  const parent = openSync(dirname(cluster), "r")
  fsyncSync(parent)
  closeSync(parent)
}

const findAbandoned = (root: string) =>
  readdirSync(root).flatMap((name) => {
    const path = join(root, name)
    const creator = temporaryName.exec(name)?.[1]
    return creator !== undefined && !inProgress.has(path) && isAbandoned(path, Number(creator)) ? [path] : []
  })

/** In a container pids are soon reused, hence the age limit. */
const isAbandoned = (path: string, creator: number) => {
  const found = statSync(path, { throwIfNoEntry: false })
  return found !== undefined && (creator === process.pid || !isAlive(creator) || Date.now() - found.mtimeMs > 600_000)
}

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return hasCode(error, "EPERM")
  }
}
