import { closeSync, fstatSync, openSync, readFileSync, type Stats } from "node:fs"
import { Data, Effect } from "effect"
import { systemFault } from "../../runtime/systemFault.ts"

/** A secret file that cannot be used. Says what was expected and found, never its content. */
export class UnusableFile extends Data.TaggedError("UnusableFile")<{ readonly message: string }> {
  /** Converts what `node:fs` throws, without the path. */
  static readonly to = (use: string) => (cause: unknown) =>
    cause instanceof UnusableFile
      ? cause
      : new UnusableFile({ message: `expected a file that can be ${use}: ${systemFault(cause)}` })
}

/** Opens a path for reading, and closes it when `use` ends. */
export const whileOpen = <A>(path: string, use: (descriptor: number) => A): A => {
  const descriptor = openSync(path, "r")
  try {
    return use(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

const ownGroups = () => [
  ...(process.getgroups?.() ?? []),
  ...(process.getegid === undefined ? [] : [process.getegid()])
]

/** Mode 0400 or 0600; or 0440 if root owns it and we are in its group, as Kubernetes mounts it for an `fsGroup`. */
export const isPrivate = (
  { gid, mode, uid }: Pick<Stats, "gid" | "mode" | "uid">,
  groups: ReadonlyArray<number>
): boolean => {
  const permissions = mode & 0o777
  return permissions === 0o400 || permissions === 0o600 || (permissions === 0o440 && uid === 0 && groups.includes(gid))
}

/** Throws an `UnusableFile` unless an open file is private. */
export const refuseShared = (file: number): void => {
  const stats = fstatSync(file)
  if (isPrivate(stats, ownGroups())) return
  const found = (stats.mode & 0o777).toString(8).padStart(4, "0")
  throw new UnusableFile({ message: `expected a file of mode 0400 or 0600; found ${found}` })
}

/** Reads the bytes of a file that is private; refuses any other. */
export const readPrivateBytes = (path: string): Effect.Effect<Buffer, UnusableFile> =>
  Effect.try({
    try: () =>
      whileOpen(path, (file) => {
        refuseShared(file)
        return readFileSync(file)
      }),
    catch: UnusableFile.to("read")
  })

export const readPrivateFile = (path: string): Effect.Effect<string, UnusableFile> =>
  Effect.map(readPrivateBytes(path), (bytes) => bytes.toString("utf8"))
