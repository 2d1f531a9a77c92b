import { randomUUID } from "node:crypto"
import {
  chmodSync,
  chownSync,
  closeSync,
  fstatSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync
} from "node:fs"
import { dirname } from "node:path"
import { Data, Effect } from "effect"
import { systemFault } from "../../runtime/systemFault.ts"

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

/** Opens a path for reading, and closes it after `use`. */
export const whileOpen = <A>(path: string, use: (descriptor: number) => A): A => {
  const descriptor = openSync(path, "r")
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
 * Whether only its owner and root can read a file: the mode is 0400 or 0600. Also accepts 0440 if root owns the file
 * and `groups` has its group, as Kubernetes mounts secrets with an `fsGroup`.
 */
export const isPrivate = (
  { gid, mode, uid }: Pick<Stats, "gid" | "mode" | "uid">,
  groups: ReadonlyArray<number>
): boolean => {
  const permissions = mode & 0o777
  return permissions === 0o400 || permissions === 0o600 || (permissions === 0o440 && uid === 0 && groups.includes(gid))
}

/** Throws an `UnusableFile` unless an open file is private. */
export const refuseShared = (descriptor: number): void => {
  const stats = fstatSync(descriptor)
  if (isPrivate(stats, processGroups())) return
  const actual = (stats.mode & 0o777).toString(8).padStart(4, "0")
  throw new UnusableFile({ message: `expected a file of mode 0400 or 0600; found ${actual}` })
}

/** Reads a file; fails unless it is private. */
export const readPrivateBytes = (path: string): Effect.Effect<Buffer, UnusableFile> =>
  Effect.try({
    try: () =>
      whileOpen(path, (descriptor) => {
        refuseShared(descriptor)
        return readFileSync(descriptor)
      }),
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
        writeFileSync(temporary, `${text}\n`, { mode: 0o600, flush: true })
        linkSync(temporary, path)
      } finally {
        rmSync(temporary, { force: true })
      }
      whileOpen(dirname(path), fsyncSync)
    },
    catch: UnusableFile.cannotBe("written")
  })

const failureToReplace = UnusableFile.cannotBe("replaced")

/** Creates the empty file that will replace a keyring file. Its name is fixed, so this fails during another change. */
const beginReplacement = (path: string) =>
  Effect.try({
    try: () => {
      const target = realpathSync(path)
      const temporary = `${target}.new`
      writeFileSync(temporary, "", { mode: 0o600, flag: "wx" })
      return { target, temporary, isReplaced: false }
    },
    catch: (cause) => {
      const { code, path: existing } = cause as NodeJS.ErrnoException
      const message = `expected no file ${existing}, which exists only while a command changes the keyring; found one`
      return code === "EEXIST" ? new UnusableFile({ message }) : failureToReplace(cause)
    }
  })

/** Replaces a file by a temporary one with this text: atomically, even if the machine crashes. Keeps owner and mode. */
const replaceFile = (target: string, temporary: string, text: string) =>
  Effect.try({
    try: () => {
      writeFileSync(temporary, text, { flag: "r+" })
      const { gid, mode, uid } = statSync(target)
      chownSync(temporary, uid, gid)
      chmodSync(temporary, mode & 0o777)
      whileOpen(temporary, fsyncSync)
      renameSync(temporary, target)
      whileOpen(dirname(target), fsyncSync)
    },
    catch: failureToReplace
  })

/** Replaces a keyring file's text by the result of `edit`. No change if `edit` fails. Fails during another change. */
export const editKeyringFile = <E, R>(path: string, edit: (text: string) => Effect.Effect<string, E, R>) =>
  Effect.acquireUseRelease(
    beginReplacement(path),
    (replacement) =>
      Effect.gen(function* () {
        const { target, temporary } = replacement
        const text = yield* edit(yield* readPrivateText(target))
        yield* replaceFile(target, temporary, text)
        replacement.isReplaced = true
      }),
    ({ isReplaced, temporary }) =>
      Effect.sync(() => {
        if (!isReplaced) rmSync(temporary, { force: true })
      })
  )
