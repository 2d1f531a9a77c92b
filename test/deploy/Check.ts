import { cpSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import type { Skipped } from "../support/process/installedPrograms.ts"
import type { Finished } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

/** A change of one file that breaks it. */
export type Mistake = readonly [file: string, text: string, instead: string]

/** The problems of a piece of deployment material, one sentence each. */
type Problems = ReadonlyArray<string>

/** Checks one piece of deployment material in a copy of `deploy`. */
export interface Check {
  readonly piece: string
  readonly run: (deploy: string) => Problems | Effect.Effect<Problems, Skipped, Scope.Scope>
  /** Mistakes that the check must find, one at a time. */
  readonly mistakes: ReadonlyArray<Mistake>
}

/** The material as it is shipped. */
export const shipped = join(import.meta.dirname, "../../deploy")

const withMistake = ([file, text, instead]: Mistake) =>
  Effect.map(temporaryDirectory, (directory) => {
    const copy = join(directory, "deploy")
    cpSync(shipped, copy, { recursive: true })
    const path = join(copy, file)
    const before = readFileSync(path, "utf8")
    if (!before.includes(text)) throw new Error(`${file} does not contain ${text}`)
    writeFileSync(path, before.replace(text, instead))
    return copy
  })

/** The problems that a check reports on the shipped material, or on a copy with a mistake. */
export const problemsIn = ({ run }: Check, mistake?: Mistake) =>
  Effect.gen(function* () {
    const found = run(mistake === undefined ? shipped : yield* withMistake(mistake))
    return Effect.isEffect(found) ? yield* found : found
  }).pipe(Effect.scoped)

/** The sentences of the rules that do not hold. */
export const broken = (...rules: ReadonlyArray<readonly [holds: boolean, otherwise: string]>): Problems =>
  rules.flatMap(([holds, otherwise]) => (holds ? [] : [otherwise]))

/** The output of a program that checks a file, if its exit code is not 0. */
export const problemsOf = ({ code, stderr, stdout }: Finished): Problems => {
  if (code === 0) return []
  const lines = `${stdout}\n${stderr}`.split("\n").filter((line) => line.trim() !== "")
  return lines.length > 0 ? lines.slice(-10) : [`exit code ${code}`]
}
