import { readFileSync } from "node:fs"
import { registerHooks } from "node:module"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import type * as Shrinking from "./shrink.ts"

/** A text that occurs once in a source file, and what stands in its place. */
export type Edit = readonly [file: string, text: string, replacement: string]

/** Sources without mutants, where the tests run on others. */
const root = pathToFileURL(`${process.env["MUTATION_ROOT"] ?? join(import.meta.dirname, "../..")}/`).href
const entry = "test/world/shrink.ts"
const mark = /\?planted=(\d+)$/

const imported = /^(?:import|export) (?!type )[^"]*?from "(\.[^"]+)"/gm

/** The source files of the world, and what each imports of the others. */
const imports = new Map<string, ReadonlyArray<string>>()
const follow = (file: string): void => {
  if (imports.has(file)) return
  const source = readFileSync(fileURLToPath(root + file), "utf8")
  const others = Array.from(source.matchAll(imported), ([, path]) => new URL(path ?? "", root + file).href)
  const files = others.map((url) => url.slice(root.length))
  imports.set(file, files)
  files.forEach(follow)
}

/** The files that import any of these, directly or not, and the files themselves. Only they are loaded anew. */
const importersOf = (files: Iterable<string>): ReadonlySet<string> => {
  if (imports.size === 0) follow(entry)
  const importers = new Set(files)
  for (const importer of importers) {
    for (const [file, others] of imports) if (others.includes(importer)) importers.add(file)
  }
  return importers
}

interface Planted {
  readonly edits: ReadonlyArray<Edit>
  readonly loaded: ReadonlySet<string>
}
const planted: Array<Planted> = []

registerHooks({
  resolve: (specifier, context, next) => {
    const resolved = next(specifier, context)
    const [marked = "", n] = mark.exec(context.parentURL ?? "") ?? []
    const isLoaded = planted[Number(n)]?.loaded.has(resolved.url.slice(root.length)) === true
    return isLoaded ? { ...resolved, url: resolved.url + marked } : resolved
  },
  load: (url, context, next) => {
    const [, n] = mark.exec(url) ?? []
    const edits = planted[Number(n)]?.edits ?? []
    const file = url.replace(mark, "").slice(root.length)
    const own = edits.filter(([of]) => of === file)
    if (own.length === 0) return next(url, context)
    const source = own.reduce(
      (source, [, text, replacement]) => {
        const [before, after, more] = source.split(text)
        if (before === undefined || after === undefined || more !== undefined) {
          throw new Error(`${file} does not have once: ${text}`)
        }
        return before + replacement + after
      },
      readFileSync(fileURLToPath(root + file), "utf8")
    )
    return { format: "module-typescript", source, shortCircuit: true }
  }
})

/** The world with faults planted in its sources, as modules of its own. */
export const plantedWorld = async (edits: ReadonlyArray<Edit>): Promise<typeof Shrinking> => {
  const n = planted.push({ edits, loaded: importersOf(edits.map(([file]) => file)) }) - 1
  // What transforms the imports of tests knows nothing of modules with a mark.
  const native = "data:text/javascript,export const load = (url) => import(url)"
  const { load } = (await import(native)) as { readonly load: (url: string) => Promise<typeof Shrinking> }
  return await load(`${root}${entry}?planted=${n}`)
}
