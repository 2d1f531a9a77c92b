import assert from "node:assert/strict"
import { spawnSync } from "node:child_process"
import { copyFileSync, globSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, normalize } from "node:path"
import { type Check, project } from "./Check.ts"

/** What each file imports of the others, types included. */
type Imports = ReadonlyMap<string, ReadonlyArray<string>>

const importsIn = (text: string) =>
  Array.from(text.matchAll(/^(?:import|export|\} from).*"(\.\.?\/[^"]+)"$/gm), ([, path = ""]) => path)

const sources = (): Imports =>
  new Map(
    globSync("src/**/*.{ts,js}", { cwd: project }).map((path) => [
      path,
      importsIn(readFileSync(join(project, path), "utf8")).map((other) => normalize(join(dirname(path), other)))
    ])
  )

/** The files of circles and between them: what is left when those that import or are imported by no other go, repeatedly. */
const circlesIn = (imports: Imports): ReadonlyArray<string> => {
  let rest = new Set(imports.keys())
  for (;;) {
    const imported = new Set(Array.from(rest).flatMap((file) => imports.get(file) ?? []))
    const next = Array.from(rest).filter(
      (file) => imported.has(file) && imports.get(file)?.some((one) => rest.has(one))
    )
    if (next.length === rest.size) return next
    rest = new Set(next)
  }
}

export const sourceChecks: ReadonlyArray<Check> = [
  {
    title: "no files of src import each other in a circle",
    run: () => {
      const all = sources()
      /** A module of a package that the owner's page takes by a path has its types there. */
      const isKnown = (path: string) => all.has(path) || all.has(path.replace(/\.js$/, ".d.ts"))
      const unknown = Array.from(all.values()).flatMap((paths) => paths.filter((path) => !isKnown(path)))
      assert.deepEqual(unknown, [])
      assert.deepEqual(circlesIn(all), [])
    },
    control: () => {
      const planted = { a: ["b"], b: ["c"], c: ["a", "leaf"], leaf: [], root: ["a"] }
      assert.deepEqual(circlesIn(new Map(Object.entries(planted))), ["a", "b", "c"])
    }
  },
  {
    title: "git ignores keyrings, certificates and PINs, which must not be committed, and no sources (F20)",
    run: () => {
      const secrets = ["keyring", "keyring.old", "server.pem", "pin", ".byok/keyring", "deploy/secrets/environment"]
      const kept = ["src/crypto/keyring/Keyring.ts", "test/crypto/keyring/Keyring.test.ts", "src/cli/KeyringCommand.ts"]
      const cwd = mkdtempSync(join(tmpdir(), "byok-check-"))
      try {
        copyFileSync(join(project, ".gitignore"), join(cwd, ".gitignore"))
        spawnSync("git", ["init", "--quiet"], { cwd })
        const { stdout } = spawnSync("git", ["check-ignore", ...secrets, ...kept], { cwd, encoding: "utf8" })
        assert.deepEqual(stdout.trimEnd().split("\n"), secrets)
      } finally {
        rmSync(cwd, { recursive: true })
      }
    }
  }
]
