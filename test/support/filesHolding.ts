import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"

/** The files of a directory, and of those in it, that hold one of the texts as bytes. */
export const filesHolding = (directory: string, texts: ReadonlyArray<string | Buffer>): ReadonlyArray<string> =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => {
      const bytes = readFileSync(file)
      return texts.some((text) => bytes.includes(text))
    })
