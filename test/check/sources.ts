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

/** The first circle of imports that is found, as a path. */
const circleIn = (imports: Imports): ReadonlyArray<string> => {
  const done = new Set<string>()
  const from = (file: string, trail: ReadonlyArray<string>): ReadonlyArray<string> => {
    if (trail.includes(file)) return [...trail.slice(trail.indexOf(file)), file]
    if (done.has(file)) return []
    for (const other of imports.get(file) ?? []) {
      const circle = from(other, [...trail, file])
      if (circle.length > 0) return circle
    }
    done.add(file)
    return []
  }
  for (const file of imports.keys()) {
    const circle = from(file, [])
    if (circle.length > 0) return circle
  }
  return []
}

export const sourceChecks: ReadonlyArray<Check> = [
  {
    title: "no files of src import each other in a circle",
    run: () => {
      const all = sources()
      const unknown = Array.from(all.values()).flatMap((paths) => paths.filter((path) => !all.has(path)))
      assert.deepEqual(unknown, [])
      assert.deepEqual(circleIn(all), [])
    },
    control: () => {
      const planted = ["a.ts", "b.ts", "c.ts"].map((name, index, all) => [name, [all[(index + 1) % 3] ?? ""]] as const)
      assert.deepEqual(circleIn(new Map(planted)), ["a.ts", "b.ts", "c.ts", "a.ts"])
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
