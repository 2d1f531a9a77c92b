import { randomUUID } from "node:crypto"
import {
  chmodSync,
  chownSync,
  fsyncSync,
  linkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { dirname } from "node:path"
import { Effect } from "effect"
import { readPrivateText, UnusableFile, whileOpen } from "./SecretFile.ts"

/** Creates a file of mode 0600 atomically: if the process is killed meanwhile, `path` has no incomplete file. */
export const writeKeyringFile = (path: string, text: string): Effect.Effect<void, UnusableFile> =>
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

/** Creates the file that will replace a keyring file. Fails during another change, because the name is the same. */
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

/** Replaces the file atomically, even if the machine crashes. Keeps owner and mode. */
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

/** Replaces the text of a keyring file by the result of `edit`; leaves the file alone if `edit` fails. */
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
