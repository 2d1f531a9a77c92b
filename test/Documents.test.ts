import { assert, describe, it } from "@effect/vitest"
import { ESLint, type Linter } from "eslint"
import { globSync, readdirSync, readFileSync, statSync } from "node:fs"
import { dirname, join, normalize } from "node:path"
import { planLaws } from "./domain/routing/planLaws.ts"

const project = join(import.meta.dirname, "..")

const read = (path: string) => readFileSync(join(project, path), "utf8")

/** Made by programs, so that a checkout may or may not have them. */
const made = ["node_modules", "dist", "coverage", "test/bench/results", "test/drill/results"]

const files = globSync("**/*", { cwd: project, exclude: made }).filter((path) => statSync(join(project, path)).isFile())

const parentsOf = (path: string): ReadonlyArray<string> => {
  const parent = dirname(path)
  return parent === "." ? [] : [parent, ...parentsOf(parent)]
}

const known = new Set([...files, ...files.flatMap(parentsOf)])
const fileNames = new Set(files.map((path) => path.split("/").at(-1)))
const foldersIn = (path: string) =>
  readdirSync(join(project, path), { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? [entry.name] : []
  )
const rooms = foldersIn("src")
const documents = files.filter((path) => path.endsWith(".md")).sort()

const exists = (path: string) => {
  const plain = normalize(path).replace(/\/$/, "")
  return ["", ".ts", ".test.ts"].some((extension) => known.has(plain + extension))
}

/** Headings as GitHub makes anchors of them. */
const anchorsOf = (text: string) =>
  Array.from(text.matchAll(/^#+ (.*)$/gm), ([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-")
  )

const isLinkAlive = (page: string, text: string, target: string) => {
  const [path = "", anchor] = target.split("#")
  const found = path === "" ? page : normalize(join(dirname(page), path))
  if (!exists(found)) return false
  return anchor === undefined || anchorsOf(found === page ? text : read(found)).includes(anchor)
}

/** Whether words in code exist in the project, if they look like a path from its top, from `src` or beside the page. */
const isPathAlive = (page: string, words: string) => {
  if (/^[\w.-]+\.(ts|md)$/.test(words)) return fileNames.has(words)
  if (!/^[\w.-]+\/[\w./-]*$/.test(words)) return true
  const [first = ""] = words.split("/")
  const starts = ["", "src", dirname(page)].filter((start) => foldersIn(start).includes(first))
  if (made.includes(first) || starts.length === 0) return true
  return starts.some((start) => exists(join(start, words)))
}

/** The files and folders that a page names and the project does not have. */
const deadReferences = (page: string, text: string): ReadonlyArray<string> => {
  const prose = text.replace(/^ *```.*?^ *```/gms, "")
  const links = Array.from(prose.matchAll(/\]\(([^)\s]+)\)/g), ([, target = ""]) => target)
  const code = Array.from(prose.matchAll(/`([^`\n]+)`/g), ([, words = ""]) => words)
  return [
    ...links.filter((target) => !/^https?:/.test(target) && !isLinkAlive(page, text, target)),
    ...code.filter((words) => !isPathAlive(page, words))
  ]
}

/** Tables whose first cell in a row is the number of a decision, threat, fault, reading or law. */
const tables = ["test/README.md", "test/drill/README.md"]

const numbers = (text: string) => text.match(/\b[DLTRFEQ]\d+[a-z]?\b/g) ?? []

const defined = new Set(tables.flatMap((page) => read(page).match(/^\|[^|]*\|/gm) ?? []).flatMap(numbers))

/** A string of nothing but numbers is given to a program, and cites nothing. */
const unknownNumbers = (text: string) =>
  numbers(text.replace(/"[DLTRFEQ\d,]+"/g, "")).filter((number) => !defined.has(number))

describe("the documents", () => {
  it("are there to be read", () => {
    assert.includeMembers(documents, ["CHANGELOG.md", "README.md", "SECURITY.md", "docs/settings.md", "test/README.md"])
  })

  it.each(documents)("%s names no file, folder or heading that does not exist", (page) => {
    assert.deepStrictEqual(deadReferences(page, read(page)), [])
  })

  it("would be found if they did (control)", () => {
    const dead = ["test/service/Gone.test.ts", "src/utils", "crypto/Gone", "Gone.test.ts", "docs/gone"]
    const planted = dead.map((path) => `\`${path}\``).join(", ")
    assert.deepStrictEqual(deadReferences("SECURITY.md", `${planted}, \`src/domain\``), dead)
    const links = ["gone.md", "README.md#gone", "#gone"]
    assert.deepStrictEqual(deadReferences("SECURITY.md", links.map((target) => `[it](${target})`).join()), links)
  })
})

describe("decisions, threats, faults, readings and laws that are cited", () => {
  it("are defined in the tables of test/README.md and test/drill/README.md", () => {
    assert.includeMembers([...defined], ["D1", "D44", "L1", "L12", "T1", "T12", "R1", "R15", "E1", "E22", "Q1", "Q30"])
  })

  it("are in those tables, wherever source, tests and documents cite them", () => {
    const texts = files.filter((path) => /^(src|test)\/.*\.[jt]s$|\.md$/.test(path))
    const unknown = texts.flatMap((path) => unknownNumbers(read(path)).map((number) => `${path}: ${number}`))
    assert.deepStrictEqual(unknown, [])
  })

  it("are each cited by the title of a test, if they are laws of routing", () => {
    const texts = files.filter((path) => /^test\/.*\.ts$/.test(path) && !path.includes("PlantedFaults")).map(read)
    const titles = texts.flatMap((text) => text.match(/ \([^()\n]*\)(?=["`])/g) ?? [])
    const cited = new Set([...titles.flatMap(numbers), ...Object.keys(planLaws)])
    const laws = [...defined].filter((number) => number.startsWith("Q"))
    assert.lengthOf(laws, 30)
    assert.deepStrictEqual(
      laws.filter((law) => !cited.has(law)),
      []
    )
  })

  it("would be found if they were not (control)", () => {
    const planted = ["D", "L", "T", "R", "F", "E", "Q"].map((letter) => letter.concat("99"))
    assert.deepStrictEqual(unknownNumbers(`A create is refused (${planted.join()}, D7)`), planted)
  })
})

describe("the table of rooms", () => {
  const lines = read("docs/contributing.md").matchAll(/^\| `(\w+)` +\|[^|]*\|([^|]*)\|$/gm)
  const rows = Array.from(lines, ([, room = "", cell = ""]) => ({
    room,
    imports: cell.match(/\w+/g)?.filter((word) => word !== "nothing") ?? []
  }))
  const others = [...rooms, "top"]
  const program = others.map((other) => `import "../${other === "top" ? "" : `${other}/`}Any.ts"`).join("\n")

  it("has every room of src", () => {
    assert.sameMembers(
      rows.map(({ room }) => room),
      rooms
    )
  })

  /** The lines of imports that the linter refuses in a file. */
  const refusedIn = async (path: string, imports: string) => {
    const { rules } = (await new ESLint({ cwd: project }).calculateConfigForFile(path)) as Linter.Config
    const overrideConfig = { rules: { "no-restricted-imports": rules?.["no-restricted-imports"] ?? "off" } }
    const [result] = await new ESLint({ overrideConfigFile: true, overrideConfig }).lintText(imports)
    return result?.messages.map(({ line }) => line - 1)
  }

  it.each(rows)("lets $room import what the linter does", async ({ imports, room }) => {
    const refused = (await refusedIn(`src/${room}/Any.ts`, program))?.map((line) => others[line])
    assert.sameMembers(
      imports,
      others.filter((other) => other !== room && refused?.includes(other) === false)
    )
  })

  it("lets the domain's routing import the rest of the domain, and not the other way round", async () => {
    const planted = 'import "./Credential.ts"\nimport "./routing/Plan.ts"'
    assert.deepStrictEqual(await refusedIn("src/domain/Any.ts", planted), [1])
    assert.deepStrictEqual(
      await refusedIn("src/domain/routing/Any.ts", 'import "../Credential.ts"\nimport "./Plan.ts"'),
      []
    )
  })
})
