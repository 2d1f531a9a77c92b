import { closeSync, openSync } from "node:fs"
import { Effect } from "effect"
import { writeKeyringFile } from "../crypto/keyring/KeyringFile.ts"
import { readPrivateFile, refuseShared, UnusableFile } from "../crypto/keyring/SecretFile.ts"
import { refuseAs } from "./Environment.ts"

const attempt = <A>(use: () => A) => Effect.try({ try: use, catch: UnusableFile.to("read") })

/** Opens a file for reading until the scope closes, under the rule for keyring files: nobody else may read it. */
export const open = (path: string) =>
  Effect.acquireRelease(
    attempt(() => openSync(path, "r")),
    (file) => Effect.sync(() => closeSync(file))
  ).pipe(
    Effect.tap((file) => attempt(() => refuseShared(file))),
    refuseAs(path)
  )

/** Reads a file under the same rule. */
export const read = (path: string) => refuseAs(path)(readPrivateFile(path))

/** Creates a file of mode 0600, complete or not at all; fails if there is one. */
export const create = (path: string, text: string) => refuseAs(path)(writeKeyringFile(path, text))
