import { createHash } from "node:crypto"
import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { makeOnce } from "./makeOnce.ts"

const project = join(import.meta.dirname, "../../..")
const cache = join(project, "node_modules/.cache/program")

/** Bundles the program as `npm run build` does, unless these sources have been bundled before. Answers with its path. */
export const bundle = async (): Promise<string> => {
  const hash = createHash("sha256")
  for (const file of [
    "package-lock.json",
    "rolldown.config.js",
    ...globSync("src/**/*.{ts,js,css,html}", { cwd: project })
  ]) {
    hash.update(`${file}\0`).update(readFileSync(join(project, file)))
  }
  const directory = join(cache, hash.digest("hex").slice(0, 16))
  await makeOnce(directory, async (unfinished) => {
    // Loaded only to bundle: `npm run byok` begins with this file.
    const [{ rolldown }, { default: config }] = await Promise.all([
      import("rolldown"),
      import("../../../rolldown.config.js")
    ])
    await using build = await rolldown({ ...config, cwd: project })
    await build.write({ ...[config.output ?? {}].flat()[0], dir: unfinished })
  })
  return join(directory, "bin.js")
}

if (process.argv[1] === import.meta.filename) console.log(await bundle())
