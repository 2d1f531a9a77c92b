import { execFile } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { Effect } from "effect"
import { version } from "../../../src/wiring/OtlpSettings.ts"
import { makeOnce } from "./makeOnce.ts"

const run = promisify(execFile)
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

/** Unpacks a released version, once for all tests. */
export const unpackRelease = (version: string) =>
  Effect.promise(async (): Promise<Release> => {
    const directory = join(unpacked, `byok-${version}`)
    await makeOnce(directory, (unfinished) =>
      run("tar", ["-xzf", join(packages, `byok-${version}.tgz`), "--strip-components=1", "-C", unfinished])
    )
    const { bin } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8")) as { bin: { byok: string } }
    return { directory, script: join(directory, bin.byok) }
  })
