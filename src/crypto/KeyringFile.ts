import {
  closeSync,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { dirname } from "node:path"
import { Effect } from "effect"
import { InvalidKeyring } from "./Keyring.ts"

const failureTo = (use: string) => (cause: unknown) => {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown error"
  return new InvalidKeyring({ message: `expected a file that can be ${use}; found ${code}` })
}
const failure = failureTo("read")
const failureToReplace = failureTo("replaced")

/** Reads a keyring file that only its owner can read. */
export const readKeyringFile = (path: string): Effect.Effect<string, InvalidKeyring> =>
  Effect.try({
    try: () => {
      const file = openSync(path, "r")
      try {
        const mode = fstatSync(file).mode & 0o777
        if (mode !== 0o400 && mode !== 0o600) {
          const found = mode.toString(8).padStart(4, "0")
          throw new InvalidKeyring({ message: `expected a file of mode 0400 or 0600; found ${found}` })
        }
        return readFileSync(file, "utf8")
      } finally {
        closeSync(file)
      }
    },
    catch: (cause) => (cause instanceof InvalidKeyring ? cause : failure(cause))
  })

/** Writes a new keyring file with mode 0600; an existing one is left alone and is a failure. */
export const writeKeyringFile = (path: string, text: string): Effect.Effect<void, InvalidKeyring> =>
  Effect.try({
    try: () => writeFileSync(path, `${text}\n`, { mode: 0o600, flag: "wx", flush: true }),
    catch: failure
  })

/** Opens what is to take the place of a keyring file. Its name keeps others from changing that file at the same time. */
const beginReplacement = (path: string) =>
  Effect.try({
    try: () => {
      const target = realpathSync(path)
      const temporary = `${target}.new`
      return { target, temporary, file: openSync(temporary, "wx", 0o600), inPlace: false }
    },
    catch: (cause) => {
      const taken = cause instanceof Error && "code" in cause && cause.code === "EEXIST"
      const message = `expected no file ${path}.new, which a command makes while it changes the keyring; found one`
      return taken ? new InvalidKeyring({ message }) : failureToReplace(cause)
    }
  })

/** Everybody sees the old file or the whole new one, also after a crash; owner and mode stay. */
const putIntoPlace = (target: string, temporary: string, file: number, text: string) =>
  Effect.try({
    try: () => {
      const { gid, mode, uid } = statSync(target)
      const made = fstatSync(file)
      if (made.uid !== uid || made.gid !== gid) fchownSync(file, uid, gid)
      fchmodSync(file, mode & 0o777)
      writeSync(file, text)
      fsyncSync(file)
      renameSync(temporary, target)
      const directory = openSync(dirname(target), "r")
      fsyncSync(directory)
      closeSync(directory)
    },
    catch: failureToReplace
  })

/** Replaces the text of a keyring file by what `edit` makes of it, or leaves it alone if that fails. */
export const editKeyringFile = <E, R>(path: string, edit: (text: string) => Effect.Effect<string, E, R>) =>
  Effect.acquireUseRelease(
    beginReplacement(path),
    (replacement) =>
      Effect.gen(function* () {
        const { file, target, temporary } = replacement
        const text = yield* edit(yield* readKeyringFile(target))
        yield* putIntoPlace(target, temporary, file, text)
        replacement.inPlace = true
      }),
    ({ file, inPlace, temporary }) =>
      Effect.sync(() => {
        closeSync(file)
        if (!inPlace) rmSync(temporary, { force: true })
      })
  )
