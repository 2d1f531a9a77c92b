import { createHash } from "node:crypto"
import { existsSync, globSync, mkdtempSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { rolldown } from "rolldown"
import config from "../../../rolldown.config.js"

const project = join(import.meta.dirname, "../../..")
const cache = join(project, "node_modules/.cache/program")

/** Bundles the program as `npm run build` does, unless these sources have been bundled before. Answers with its path. */
export const bundle = async (): Promise<string> => {
  const hash = createHash("sha256")
  for (const file of ["package-lock.json", "rolldown.config.js", ...globSync("src/**/*.{ts,js}", { cwd: project })]) {
    hash.update(`${file}\0`).update(readFileSync(join(project, file)))
  }
  const directory = join(cache, hash.digest("hex").slice(0, 16))
  if (!existsSync(directory)) {
    mkdirSync(cache, { recursive: true })
    const unfinished = mkdtempSync(join(cache, "unfinished-"))
    const build = await rolldown({ ...config, cwd: project })
    const output = [config.output ?? {}].flat()[0]
    await build.write({ ...output, dir: unfinished })
    await build.close()
    try {
      renameSync(unfinished, directory)
    } catch (error) {
      // Unless another run of the tests was faster.
      if (!existsSync(directory)) throw error
      rmSync(unfinished, { recursive: true })
    }
  }
  return join(directory, "bin.js")
}
