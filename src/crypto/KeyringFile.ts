import { closeSync, fstatSync, openSync, readFileSync, writeFileSync } from "node:fs"
import { Effect } from "effect"
import { InvalidKeyring } from "./Keyring.ts"

const failure = (cause: unknown) => {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown error"
  return new InvalidKeyring({ message: `expected a file that can be read; found ${code}` })
}

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
