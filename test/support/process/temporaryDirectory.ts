import { chmodSync, mkdtempSync, realpathSync } from "node:fs"
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
