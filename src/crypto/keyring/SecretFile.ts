import { closeSync, fstatSync, openSync, readFileSync, type Stats } from "node:fs"
import { Data, Effect } from "effect"
import { systemFault } from "../../runtime/systemFault.ts"

/** The message says how the file differs from the expectation, and never quotes its content. */
export class UnusableFile extends Data.TaggedError("UnusableFile")<{ readonly message: string }> {
  /** Converts an error of `node:fs`, without the path. */
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
 * Whether only this process and root can read a file: the mode is 0400 or 0600. Also accepts 0440 if root owns the file and
 * `groups` has its group, as Kubernetes mounts secrets with an `fsGroup`.
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

export const readPrivateBytes = (path: string): Effect.Effect<Buffer, UnusableFile> =>
  Effect.try({
    try: () =>
      whileOpen(path, (descriptor) => {
        refuseShared(descriptor)
        return readFileSync(descriptor)
      }),
    catch: UnusableFile.cannotBe("read")
  })

export const readPrivateText = (path: string): Effect.Effect<string, UnusableFile> =>
  Effect.map(readPrivateBytes(path), (bytes) => bytes.toString("utf8"))
