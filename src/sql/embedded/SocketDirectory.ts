import { Effect } from "effect"
import { createHash } from "node:crypto"
import { chmodSync, lchownSync, lstatSync, mkdirSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"
import { postgresUser } from "./LeashedProcess.ts"

/** The name that clients give to the socket of port 5432. */
export const socketName = ".s.PGSQL.5432"

/** Addresses of sockets are short: 107 bytes on Linux, 103 on macOS. */
const fits = (directory: string) => Buffer.byteLength(join(directory, socketName)) <= 103

/** Where the socket lies: in the data directory, or, where its path is too long for that, in a short one of its own. */
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
      return EmbeddedPostgresError.of(`The socket of the embedded PostgreSQL cannot be placed: ${code ?? message}.`)
    }
  })

/** Who may enter it is the database's master, as nobody has to tell a password there. */
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
    throw new Error(`${directory} exists, but is not a directory that only PostgreSQL's user may enter; remove it`)
  }
  if (postgresUser !== undefined) lchownSync(directory, postgresUser.uid, postgresUser.gid)
}
