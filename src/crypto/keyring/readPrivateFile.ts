import { fstatSync, readFileSync } from "node:fs"
import { Effect } from "effect"
import { UnusableFile } from "./UnusableFile.ts"
import { whileOpen } from "./whileOpen.ts"

/** Reads a file that has mode 0400 or 0600; refuses any other. */
export const readPrivateFile = (path: string): Effect.Effect<string, UnusableFile> =>
  Effect.try({
    try: () =>
      whileOpen(path, (file) => {
        const mode = fstatSync(file).mode & 0o777
        if (mode !== 0o400 && mode !== 0o600) {
          const found = mode.toString(8).padStart(4, "0")
          throw new UnusableFile({ message: `expected a file of mode 0400 or 0600; found ${found}` })
        }
        return readFileSync(file, "utf8")
      }),
    catch: UnusableFile.to("read")
  })
