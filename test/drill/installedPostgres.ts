import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { Skipped } from "../support/process/installedPrograms.ts"

/** The directory of a PostgreSQL that is installed with its tools, which the embedded one is not. */
export const installedPostgres = (programs: ReadonlyArray<string>) =>
  Effect.suspend(() => {
    const root = "/usr/lib/postgresql"
    const versions = existsSync(root) ? readdirSync(root).map((version) => join(root, version, "bin")) : []
    const directories = [...versions, ...(process.env["PATH"] ?? "").split(":")]
    const found = directories.find((directory) => programs.every((program) => existsSync(join(directory, program))))
    return found === undefined
      ? Effect.fail(new Skipped({ why: `${programs.join(", ")} are not installed` }))
      : Effect.succeed(found)
  })
