import { spawn } from "node:child_process"
import { cpSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"
import { ESLint } from "eslint"
import type TypeScript from "typescript"
import { makeOnce } from "../support/process/makeOnce.ts"
import { project } from "./Check.ts"
import { documentChecks } from "./documents.ts"
import { sourceChecks } from "./sources.ts"

const program = (name: string) => join(project, "node_modules/.bin", name)

/** Runs a program to its end. Returns its output if it fails, else an empty text. */
const run = (path: string, ...args: ReadonlyArray<string>) =>
  new Promise<string>((resolve) => {
    const child = spawn(path, args, { cwd: project, stdio: ["ignore", "pipe", "pipe"] })
    let text = ""
    child.stdout.setEncoding("utf8").on("data", (part: string) => (text += part))
    child.stderr.setEncoding("utf8").on("data", (part: string) => (text += part))
    child.once("error", (error) => resolve(error.message))
    child.once("close", (code) => resolve(code === 0 ? "" : `${text}${args.join(" ")} ended with ${code}`))
  })

/** A copy of TypeScript whose checker also reports what the Effect language service finds, made once per version. */
const typescriptWithEffect = async (): Promise<typeof TypeScript> => {
  const require = createRequire(import.meta.url)
  const versionOf = (name: string) =>
    (JSON.parse(readFileSync(join(project, "node_modules", name, "package.json"), "utf8")) as { version: string })
      .version
  const versions = `${versionOf("typescript")}-${versionOf("@effect/language-service")}`
  const copy = join(project, "node_modules/.cache", `typescript-effect-${versions}`)
  await makeOnce(copy, async (unfinished) => {
    cpSync(join(project, "node_modules/typescript"), unfinished, {
      recursive: true,
      filter: (path) =>
        !/\/lib\/([a-z]+(-[a-z]+)?|_?tsc|_?tsserver|typingsInstaller)(\.js)?$/i.test(path) ||
        /lib\/typescript\.js$/.test(path)
    })
    const failure = await run(
      program("effect-language-service"),
      ...["patch", "--dir", unfinished, "--module", "typescript"]
    )
    if (failure !== "") throw new Error(failure)
  })
  return require(join(copy, "lib/typescript.js")) as typeof TypeScript
}

/** Effect's rules that find mistakes. The others are for style or for older versions, and take as long as the types. */
const effectRules = [
  ...["classSelfMismatch", "effectFnImplicitAny", "floatingEffect", "missingEffectContext", "missingEffectError"],
  ...["missingLayerContext", "missingReturnYieldStar", "missingStarInYieldEffectGen", "nonObjectEffectServiceType"],
  ...["overriddenSchemaConstructor", "effectInFailure", "effectInVoidSuccess", "lazyPromiseInEffectSync"],
  ...["layerMergeAllWithDependencies", "scopeInLayerEffect"]
]

/** The setting of the Effect language service that leaves the other rules out. */
const effectSeverities = () => {
  const { definitions } = createRequire(import.meta.url)("@effect/language-service/schema.json") as {
    readonly definitions: Readonly<Record<string, { readonly properties: object }>>
  }
  const known = Object.keys(definitions["effectLanguageServicePluginDiagnosticSeverityDefinition"]?.properties ?? {})
  const missing = effectRules.filter((rule) => !known.includes(rule))
  if (missing.length > 0) throw new Error(`The Effect language service has no rule ${missing.join(", ")}`)
  return Object.fromEntries(known.map((rule) => [rule, effectRules.includes(rule) ? "error" : "off"]))
}

/** Types, Effect's own rules and those of the linter, on one program that is type-checked once. */
const checkSources = async (): Promise<string> => {
  const ts = await typescriptWithEffect()
  const host = { ...ts.sys, onUnRecoverableConfigFileDiagnostic: () => undefined }
  const parsed = ts.getParsedCommandLineOfConfigFile(join(project, "tsconfig.json"), {}, host)
  if (parsed === undefined) return "tsconfig.json cannot be read"
  const plugins = [{ name: "@effect/language-service", diagnosticSeverity: effectSeverities() }]
  const checked = ts.createProgram({ rootNames: parsed.fileNames, options: { ...parsed.options, plugins } })
  const format = {
    getCanonicalFileName: (path: string) => path,
    getCurrentDirectory: () => project,
    getNewLine: () => "\n"
  }
  const page = await run(program("tsc"), "-p", "src/links/page")
  const types = ts.formatDiagnostics([...parsed.errors, ...ts.getPreEmitDiagnostics(checked)], format)
  const languageOptions = { parserOptions: { projectService: false, programs: [checked] } }
  const eslint = new ESLint({ cwd: project, overrideConfig: [{ files: ["**/*.ts"], languageOptions }] })
  const formatter = await eslint.loadFormatter("stylish")
  return `${page}${types}${await formatter.format(await eslint.lintFiles(["."]), { rulesMeta: {} } as ESLint.LintResultData)}`
}

const checkRules = async (): Promise<string> => {
  const failures: Array<string> = []
  for (const { control, run, title } of [...documentChecks, ...sourceChecks]) {
    for (const [name, part] of [
      [title, run],
      [`${title} (control)`, control]
    ] as const) {
      try {
        await part?.()
      } catch (error) {
        failures.push(`${name}: ${error instanceof Error ? error.message : String(error)}`)
      }
    }
  }
  return failures.join("\n")
}

const parts = {
  sources: checkSources,
  format: () => run(program("prettier"), "--check", "--cache", "--log-level", "warn", ".", "!test/vectors"),
  unused: () => run(program("knip")),
  documents: checkRules
}
type Part = keyof typeof parts

const report = async (part: Part) => {
  const begun = performance.now()
  const failure = (await parts[part]()).trim()
  const seconds = ((performance.now() - begun) / 1000).toFixed(0)
  console.log(failure === "" ? `ok      ${part} (${seconds} s)` : `failed  ${part} (${seconds} s)\n${failure}`)
  if (failure !== "") process.exitCode = 1
}

const all = Object.keys(parts) as ReadonlyArray<Part>
const given = process.argv.slice(2)
const wanted = given.length === 0 ? all : all.filter((part) => given.includes(part))
if (wanted.length < given.length) {
  console.error(`Parts are ${all.join(", ")}`)
  process.exit(2)
}
/** Type-checking blocks its process, so it runs in a separate one; the other parts run one after the other meanwhile. */
if (wanted.length === 1 || !wanted.includes("sources")) {
  for (const part of wanted) await report(part)
} else {
  const rest = wanted.filter((part) => part !== "sources")
  const runs = [["sources"], rest].map((some) =>
    spawn(process.execPath, [import.meta.filename, ...some], { cwd: project, stdio: "inherit" })
  )
  await Promise.all(
    runs.map(
      (child) =>
        new Promise<void>((resolve) =>
          child.once("close", (code) => {
            if (code !== 0) process.exitCode = 1
            resolve()
          })
        )
    )
  )
}
