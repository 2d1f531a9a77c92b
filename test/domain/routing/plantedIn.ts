import { assert } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { ModuleKind, ScriptTarget, transpileModule } from "typescript"

/** A change of a text that occurs once in a source file. */
export type Edit = readonly [text: string, replacement: string]

const routing = join(import.meta.dirname, "../../../src/domain/routing")

/** A source file of routing as a module of its own, with a fault. Works for files that import nothing but types. */
export const plantedIn = async <Module>(file: string, edits: ReadonlyArray<Edit>): Promise<Module> => {
  const planted = edits.reduce(
    (source, [text, replacement]) => {
      const [before, after, more] = source.split(text)
      assert(before !== undefined && after !== undefined && more === undefined, `${file} has once: ${text}`)
      return before + replacement + after
    },
    readFileSync(join(routing, file), "utf8")
  )
  const compilerOptions = { module: ModuleKind.ESNext, target: ScriptTarget.ES2024 }
  const { outputText } = transpileModule(planted, { compilerOptions })
  return (await import(`data:text/javascript,${encodeURIComponent(outputText)}`)) as Module
}
