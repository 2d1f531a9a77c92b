import { cpSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import type { Check, Mistake } from "./Check.ts"
import { shipped } from "./shipped.ts"

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
