import { chmodSync, chownSync, fsyncSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { Effect } from "effect"
import { readPrivateText, refuseOthers, UnusableFile, whileOpen } from "../../runtime/SecretFile.ts"

const failureToReplace = UnusableFile.cannotBe("replaced")

/** Creates the empty file that will replace a keyring file. Its name is fixed, so this fails during another change. */
const beginReplacement = (path: string) =>
  Effect.try({
    try: () => {
      refuseOthers(path)
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
