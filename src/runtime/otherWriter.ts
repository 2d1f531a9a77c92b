import { lstatSync, readlinkSync, type Stats, statSync } from "node:fs"
import { dirname, isAbsolute, join } from "node:path"

/*
 * Invariant: if `otherWriterOf` finds nobody, only root and this user can change what the path names. Whoever may write to
 * a folder can rename its entries; in a sticky folder, only an entry's owner and the folder's.
 */

/** A name that another user can change. `by` names the user or group. */
interface OtherWriter {
  readonly path: string
  readonly by: string
}

const isTrusted = (uid: number) => uid === 0 || uid === process.geteuid?.()

/**
 * Who else than root and this user may write to a file or folder. The group whose number is this user's counts as the
 * user's own, as Linux distributions set it up, unless `groupIsShared`.
 */
export const otherWriter = (
  { gid, mode, uid }: Pick<Stats, "gid" | "mode" | "uid">,
  groupIsShared = false
): string | undefined => {
  if (process.geteuid === undefined) return undefined
  if (!isTrusted(uid)) return `user ${uid}`
  if ((mode & 0o002) !== 0) return "every user"
  const isOwnGroup = gid === process.geteuid() && !groupIsShared
  return (mode & 0o020) !== 0 && !isOwnGroup ? `group ${gid}` : undefined
}

/** Who else can make an entry of a folder name something else. In a sticky folder, that is only the entry's owner. */
const otherWriterOfEntry = (path: string, folder: Stats, entry: Stats, groupIsShared: boolean) => {
  const by = otherWriter(folder, groupIsShared)
  if (by === undefined) return undefined
  const isSticky = (folder.mode & 0o1000) !== 0 && isTrusted(folder.uid)
  if (!isSticky) return { path: dirname(path), by }
  return isTrusted(entry.uid) ? undefined : { path, by: `user ${entry.uid}` }
}

/** Folders whose entries are open files, and links only in name. */
const openFiles = /^\/proc\/\d+(\/task\/\d+)?\/fd$/

/**
 * Finds the first name that another user can change among those that the system passes on the way to an existing path,
 * through symbolic links too, and the file or folder at its end. Does not judge the mode of a file. Throws system errors.
 */
export const otherWriterOf = (path: string, groupIsShared = false): OtherWriter | undefined => {
  const end = statSync(path)
  const names = (isAbsolute(path) ? path : `${process.cwd()}/${path}`).split("/")
  // Never a symbolic link, so that `..` leads to its parent.
  let reached = "/"
  for (let name = names.shift(); name !== undefined; name = names.shift()) {
    if (name === "..") reached = dirname(reached)
    if (name === "" || name === "." || name === "..") continue
    const entryPath = join(reached, name)
    const entry = lstatSync(entryPath)
    const found = otherWriterOfEntry(entryPath, lstatSync(reached), entry, groupIsShared)
    if (found !== undefined) return found
    if (entry.isSymbolicLink()) {
      if (openFiles.test(reached)) return undefined
      const target = readlinkSync(entryPath)
      names.unshift(...target.split("/"))
      if (isAbsolute(target)) reached = "/"
    } else reached = entryPath
  }
  const { gid, uid } = end
  const by = otherWriter({ gid, uid, mode: end.isDirectory() ? end.mode : 0 }, groupIsShared)
  return by === undefined ? undefined : { path: reached, by }
}
