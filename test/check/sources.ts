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

/** The files in and between circles: those left after repeatedly removing files that import no other or that no other imports. */
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

/** What each folder imports of the others. */
const foldersOf = (imports: Imports): Imports => {
  const folders = Map.groupBy(imports, ([path]) => dirname(path))
  return new Map(
    Array.from(folders, ([folder, files]) => {
      const others = files.flatMap(([, paths]) => paths.map(dirname)).filter((other) => other !== folder)
      return [folder, Array.from(new Set(others))]
    })
  )
}

export const sourceChecks: ReadonlyArray<Check> = [
  {
    title: "no files of src import each other in a circle",
    run: () => {
      const all = sources()
      /** Whether an import leads to a source file, or to the declared types of a module that the owner's page serves. */
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
    title: "no folders of src import each other in a circle",
    run: () => assert.deepEqual(circlesIn(foldersOf(sources())), []),
    control: () => {
      const files = {
        "a/1": ["b/1", "a/2"],
        "a/2": ["leaf/1"],
        "b/1": [],
        "b/2": ["c/1"],
        "c/1": ["a/2"],
        "leaf/1": []
      }
      const planted = new Map(Object.entries(files))
      assert.deepEqual(circlesIn(planted), [])
      assert.deepEqual(circlesIn(foldersOf(planted)), ["a", "b", "c"])
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
