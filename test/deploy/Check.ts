import { cpSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import type { Skipped } from "../support/process/installedPrograms.ts"
import type { Finished } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

/** What a check has to say. */
export interface Finding {
  readonly problems: ReadonlyArray<string>
  /** Measured along the way. */
  readonly figures?: ReadonlyArray<string>
}

/** A change of one file that breaks it. */
export interface Mistake {
  readonly file: string
  readonly text: string
  readonly instead: string
}

/** Checks one piece of deployment material in a copy of `deploy`. */
export interface Check {
  readonly piece: string
  /** Takes minutes, so `npm test` leaves it out. */
  readonly slow?: boolean
  readonly run: (deploy: string) => Effect.Effect<Finding, Skipped, Scope.Scope>
  /** What the check must find, each alone. */
  readonly mistakes: ReadonlyArray<Mistake>
}

/** The material as it is shipped. */
export const shipped = join(import.meta.dirname, "../../deploy")

const withMistake = ({ file, instead, text }: Mistake) =>
  Effect.map(temporaryDirectory, (directory) => {
    const copy = join(directory, "deploy")
    cpSync(shipped, copy, { recursive: true })
    const path = join(copy, file)
    const before = readFileSync(path, "utf8")
    if (!before.includes(text)) throw new Error(`${file} does not contain ${text}`)
    writeFileSync(path, before.replace(text, instead))
    return copy
  })

/** What the check finds where the mistake was made. */
export const planted = (check: Check, mistake: Mistake) =>
  Effect.flatMap(withMistake(mistake), (deploy) => check.run(deploy))

/** What a program that checks a file reports, if its exit code says that something is wrong. */
export const problemsOf = ({ code, stderr, stdout }: Finished): ReadonlyArray<string> => {
  if (code === 0) return []
  const lines = `${stdout}\n${stderr}`.split("\n").filter((line) => line.trim() !== "")
  return lines.length > 0 ? lines.slice(-10) : [`exit code ${code}`]
}
