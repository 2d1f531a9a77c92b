import { closeSync, openSync } from "node:fs"
import { Effect } from "effect"
import { writeKeyringFile } from "../crypto/keyring/KeyringFile.ts"
import { readPrivateFile, refuseShared, UnusableFile } from "../crypto/keyring/SecretFile.ts"
import { InvalidSetting } from "./Settings.ts"

const refuse =
  (path: string) =>
  ({ message }: UnusableFile) =>
    new InvalidSetting({ message: `${path}: ${message}.` })

/** Opens a file for reading until the scope closes, under the rule for keyring files: nobody else may read it. */
export const open = (path: string) =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const file = openSync(path, "r")
        try {
          refuseShared(file)
        } catch (refused) {
          closeSync(file)
          throw refused
        }
        return file
      },
      catch: UnusableFile.to("read")
    }),
    (file) => Effect.sync(() => closeSync(file))
  ).pipe(Effect.mapError(refuse(path)))

/** Reads a file under the same rule. */
export const read = (path: string) => Effect.mapError(readPrivateFile(path), refuse(path))

/** Creates a file of mode 0600, complete or not at all; fails if there is one. */
export const create = (path: string, text: string) => Effect.mapError(writeKeyringFile(path, text), refuse(path))
