import { fstatSync, readFileSync, type Stats } from "node:fs"
import { Effect } from "effect"
import { UnusableFile } from "./UnusableFile.ts"
import { whileOpen } from "./whileOpen.ts"

/** The groups of this process; none where the system has none. */
const ownGroups = () => [
  ...(process.getgroups?.() ?? []),
  ...(process.getegid === undefined ? [] : [process.getegid()])
]

/**
 * Whether only those who may read a secret can: mode 0400 or 0600, or 0440 if root owns the file and the group is one of
 * this process, which is how Kubernetes mounts a secret for an `fsGroup`.
 */
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

/** Reads a text file that is private; refuses any other. */
export const readPrivateFile = (path: string): Effect.Effect<string, UnusableFile> =>
  Effect.map(readPrivateBytes(path), (bytes) => bytes.toString("utf8"))
