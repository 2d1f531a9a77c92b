import { randomUUID } from "node:crypto"
import {
  closeSync,
  fstatSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  rmSync,
  type Stats,
  writeFileSync
} from "node:fs"
import { dirname } from "node:path"
import { Data, Effect } from "effect"
import { otherWriter, otherWriterOf } from "./otherWriter.ts"
import { systemFault } from "./systemFault.ts"

/**
 * A secret file that cannot be used. The message says what was expected and what was found, and never quotes the
 * content.
 */
export class UnusableFile extends Data.TaggedError("UnusableFile")<{ readonly message: string }> {
  /** Converts an error of `node:fs`, without the path. `use` completes the message "expected a file that can be". */
  static readonly cannotBe = (use: string) => (cause: unknown) =>
    cause instanceof UnusableFile
      ? cause
      : new UnusableFile({ message: `expected a file that can be ${use}: ${systemFault(cause)}` })
}

/** Opens a path, by default for reading, and closes it after `use`. */
export const whileOpen = <A>(path: string, use: (descriptor: number) => A, flags = "r"): A => {
  const descriptor = openSync(path, flags, 0o600)
  try {
    return use(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

const processGroups = () => [
  ...(process.getgroups?.() ?? []),
  ...(process.getegid === undefined ? [] : [process.getegid()])
]

/**
 * Whether only its owner and root can read a file: the mode is 0400 or 0600. Also accepts 0440 if root owns the file and
 * its group is root's, as systemd passes credentials, or in `groups`, as Kubernetes mounts secrets with an `fsGroup`.
 */
export const isPrivate = (
  { gid, mode, uid }: Pick<Stats, "gid" | "mode" | "uid">,
  groups: ReadonlyArray<number>
): boolean => {
  const permissions = mode & 0o777
  const isOfReader = uid === 0 && (gid === 0 || groups.includes(gid))
  return permissions === 0o400 || permissions === 0o600 || (permissions === 0o440 && isOfReader)
}

/** Throws an `UnusableFile` if another user can change what a path names, or who owns the file there. */
export const refuseOthers = (path: string): void => {
  const other = otherWriterOf(path)
  if (other === undefined) return
  const found = `found that ${other.by} can change ${other.path}`
  throw new UnusableFile({ message: `expected a path that only root and this user can change; ${found}` })
}

/** Throws an `UnusableFile` unless an open file is private, and of root or this user. */
const refuseShared = (descriptor: number): void => {
  const stats = fstatSync(descriptor)
  if (!isPrivate(stats, processGroups())) {
    const actual = (stats.mode & 0o777).toString(8).padStart(4, "0")
    throw new UnusableFile({ message: `expected a file of mode 0400 or 0600; found ${actual}` })
  }
  const other = otherWriter({ gid: stats.gid, mode: 0, uid: stats.uid })
  if (other !== undefined) throw new UnusableFile({ message: `expected a file of root or this user; found ${other}` })
}

/** Opens a file for reading. Throws an `UnusableFile` unless it is private, and only root and this user can replace it. */
export const openPrivate = (path: string): number => {
  refuseOthers(path)
  const descriptor = openSync(path, "r")
  try {
    refuseShared(descriptor)
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    throw error
  }
}

/** Reads a file; fails unless it is private. */
export const readPrivateBytes = (path: string): Effect.Effect<Buffer, UnusableFile> =>
  Effect.try({
    try: () => {
      const descriptor = openPrivate(path)
      try {
        return readFileSync(descriptor)
      } finally {
        closeSync(descriptor)
      }
    },
    catch: UnusableFile.cannotBe("read")
  })

/** Reads a file as UTF-8; fails unless it is private. */
export const readPrivateText = (path: string): Effect.Effect<string, UnusableFile> =>
  Effect.map(readPrivateBytes(path), (bytes) => bytes.toString("utf8"))

/**
 * Creates a file of mode 0600 with a line of text. Fails if `path` exists. Atomic: if the process is killed meanwhile,
 * `path` is never an incomplete file.
 */
export const createPrivateFile = (path: string, text: string): Effect.Effect<void, UnusableFile> =>
  Effect.try({
    try: () => {
      const temporary = `${path}.${randomUUID()}.new`
      try {
        const write = (descriptor: number) => {
          refuseOthers(temporary)
          writeFileSync(descriptor, `${text}\n`)
          fsyncSync(descriptor)
        }
        whileOpen(temporary, write, "wx")
        linkSync(temporary, path)
      } finally {
        rmSync(temporary, { force: true })
      }
      whileOpen(dirname(path), fsyncSync)
    },
    catch: UnusableFile.cannotBe("written")
  })
