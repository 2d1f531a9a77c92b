import { Effect } from "effect"
import { createHash } from "node:crypto"
import { chmodSync, lchownSync, lstatSync, mkdirSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"
import { postgresUser } from "./LeashedProcess.ts"

/** The socket name that clients derive from port 5432. */
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
    catch: (error) => {
      const { code, message } = error as NodeJS.ErrnoException
      return EmbeddedPostgresError.of(`The embedded PostgreSQL's socket cannot be created: ${code ?? message}.`)
    }
  })

/** The socket needs no password: whoever can enter this directory controls the database. */
const ensurePrivate = (directory: string) => {
  const owner = postgresUser?.uid ?? process.getuid?.()
  try {
    mkdirSync(directory, { mode: 0o700 })
    chmodSync(directory, 0o700)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error
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
