import { chmodSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { temporaryDirectory } from "../process/temporaryDirectory.ts"

export const secret = "kek-1:ZmFrZS1mYWtlLWZha2UtZmFrZS1mYWtlLWZha2UtZmE="

/** A file with the secret and this mode. */
export const fileOfMode = (mode: number) =>
  Effect.map(temporaryDirectory, (directory) => {
    const file = join(directory, "keyring")
    writeFileSync(file, secret)
    chmodSync(file, mode)
    return file
  })
