import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs"
import { dirname } from "node:path"

/** Makes and fills a directory unless it exists; of several processes at once, the first to finish wins. */
export const makeOnce = async (directory: string, fill: (unfinished: string) => Promise<unknown>) => {
  if (existsSync(directory)) return
  mkdirSync(dirname(directory), { recursive: true })
  const unfinished = mkdtempSync(`${directory}-`)
  await fill(unfinished)
  try {
    renameSync(unfinished, directory)
  } catch (error) {
    if (!existsSync(directory)) throw error
    rmSync(unfinished, { recursive: true })
  }
}
