import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { Data, Effect } from "effect"

/** Debian packages unpacked into a folder with `dpkg -x`. */
const unpacked = process.env["DRILL_PACKAGES"]

const directories = [
  ...(unpacked === undefined ? [] : ["usr/bin", "usr/sbin"].map((directory) => join(unpacked, directory))),
  ...(process.env["PATH"] ?? "").split(":"),
  "/usr/sbin"
]

/** Where each of some programs is, or which are missing. */
export const installedPrograms = <const Name extends string>(names: ReadonlyArray<Name>) =>
  Effect.suspend(() => {
    const paths = {} as Record<Name, string>
    const missing = names.filter((name) => {
      const path = directories.map((directory) => join(directory, name)).find((path) => existsSync(path))
      if (path !== undefined) paths[name] = path
      return path === undefined
    })
    const is = missing.length === 1 ? "is" : "are"
    return missing.length > 0
      ? Effect.fail(new Skipped({ why: `${missing.join(", ")} ${is} not installed; see DRILL_PACKAGES` }))
      : Effect.succeed(paths)
  })

/** Where unpacked programs find what they need. */
export const programVariables = (): Record<string, string> => {
  if (unpacked === undefined) return {}
  const folders = ["usr/lib", "lib"].flatMap((name) => {
    const libraries = join(unpacked, name)
    const machines = existsSync(libraries) ? readdirSync(libraries).filter((name) => name.endsWith("-linux-gnu")) : []
    return machines.map((machine) => join(libraries, machine))
  })
  return {
    LD_LIBRARY_PATH: folders.join(":"),
    PYTHONPATH: join(unpacked, "usr/lib/python3/dist-packages")
  }
}

/** The machine lacks what a check or a fault needs. */
export class Skipped extends Data.TaggedError("Skipped")<{ readonly why: string }> {}
