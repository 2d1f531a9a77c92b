import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { version } from "../../../src/wiring/OtlpSettings.ts"
import { runProgram } from "./runNode.ts"

const project = join(import.meta.dirname, "../../..")
const packages = join(project, "test/releases")
/** Below the project's own `node_modules`, where a release finds its dependencies. */
const unpacked = join(project, "node_modules/.cache/releases")

const versionIn = (name: string) => /^byok-(\d+\.\d+\.\d+)\.tgz$/.exec(name)?.[1]

/** Versions whose packages are kept, the newest first. */
export const releases: ReadonlyArray<string> = readdirSync(packages)
  .map(versionIn)
  .filter((version) => version !== undefined)
  .sort((one, other) => other.localeCompare(one, "en", { numeric: true }))

/** The newest one before the version of the sources, which may be released itself. */
export const releaseBefore = releases.find((release) => release !== version) ?? ""

/** A released version, unpacked. */
export interface Release {
  readonly directory: string
  /** The program, for Node. */
  readonly script: string
}

const moveInto = (directory: string, unpacked: string) => {
  try {
    renameSync(unpacked, directory)
  } catch (error) {
    // Unless another test was faster.
    if (!existsSync(directory)) throw error
  }
}

/** Unpacks a released version, once for all tests. */
export const unpackRelease = (version: string) =>
  Effect.gen(function* () {
    const directory = join(unpacked, `byok-${version}`)
    if (!existsSync(directory)) {
      mkdirSync(unpacked, { recursive: true })
      const place = mkdtempSync(join(unpacked, "unpacking-"))
      const archive = join(packages, `byok-${version}.tgz`)
      const { code, stderr } = yield* runProgram("tar", ["-xzf", archive, "-C", place])
      if (code !== 0) return yield* Effect.die(new Error(`${archive} is not unpacked: ${stderr}`))
      moveInto(directory, join(place, "package"))
      rmSync(place, { recursive: true, force: true })
    }
    const manifest: unknown = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
    const bin: unknown = Reflect.get(Object(manifest), "bin")
    return { directory, script: join(directory, String(Reflect.get(Object(bin), "byok"))) } satisfies Release
  })
