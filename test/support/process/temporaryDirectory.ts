import { chmodSync, mkdtempSync, realpathSync, writeFileSync } from "node:fs"
import { rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { eventually } from "./eventually.ts"

/** A directory that every user may traverse, removed when the scope closes and nothing writes into it any more. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => {
    const directory = mkdtempSync(join(realpathSync(tmpdir()), "byok-test-"))
    chmodSync(directory, 0o755)
    return directory
  }),
  (directory) => {
    const remove = Effect.promise(() =>
      rm(directory, { recursive: true, force: true }).then(
        () => true,
        () => false
      )
    )
    return eventually(`${directory} is removed`, remove)
  }
)

export const secret = "kek-1:ZmFrZS1mYWtlLWZha2UtZmFrZS1mYWtlLWZha2UtZmE="

/** A file with the secret and this mode. */
export const fileOfMode = (mode: number) =>
  Effect.map(temporaryDirectory, (directory) => {
    const file = join(directory, "keyring")
    writeFileSync(file, secret)
    chmodSync(file, mode)
    return file
  })
