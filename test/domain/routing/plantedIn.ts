import { assert } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { ModuleKind, ScriptTarget, transpileModule } from "typescript"

/** A change of a text that occurs once in a source file. */
export type Edit = readonly [text: string, replacement: string]

/** The folder of the sources without mutants, if the tests run on mutants. */
const root = process.env["MUTATION_ROOT"] ?? join(import.meta.dirname, "../../..")
const routing = join(root, "src/domain/routing")

export const sourceOf = (file: string) => readFileSync(join(routing, file), "utf8")

/**
 * The address of a source file of routing as a module of its own, with a fault. Works for files that import nothing but
 * types and what is planted too: `imports` has the addresses of these by the names in the source.
 */
export const plantedUrl = (
  file: string,
  edits: ReadonlyArray<Edit>,
  imports: Readonly<Record<string, string>> = {}
): string => {
  const planted = edits.reduce((source, [text, replacement]) => {
    const [before, after, more] = source.split(text)
    assert(before !== undefined && after !== undefined && more === undefined, `${file} has once: ${text}`)
    return before + replacement + after
  }, sourceOf(file))
  const compilerOptions = { module: ModuleKind.ESNext, target: ScriptTarget.ES2024 }
  const { outputText } = transpileModule(planted, { compilerOptions })
  const linked = Object.entries(imports).reduce(
    (text, [name, url]) => text.replaceAll(`"${name}"`, `"${url}"`),
    outputText
  )
  return `data:text/javascript,${encodeURIComponent(linked)}`
}

/** A source file of routing as a module of its own, with a fault. */
export const plantedIn = async <Module>(file: string, edits: ReadonlyArray<Edit>): Promise<Module> =>
  (await import(plantedUrl(file, edits))) as Module
