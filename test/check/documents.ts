import assert from "node:assert/strict"
import { globSync, readdirSync, readFileSync, statSync } from "node:fs"
import { dirname, join, normalize, relative } from "node:path"
import { ESLint, type Linter } from "eslint"
import { type Check, project } from "./Check.ts"

const read = (path: string) => readFileSync(join(project, path), "utf8")

/** Paths made by programs, which a checkout may or may not have. */
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
const rooms = Array.from(
  new Set(globSync("src/**/*.*", { cwd: project }).map(dirname)),
  (path) => relative("src", path) || "."
)
const documents = files.filter((path) => path.endsWith(".md")).sort()

const exists = (path: string) => {
  const plain = normalize(path).replace(/\/$/, "")
  return ["", ".ts", ".test.ts", ".slow.test.ts"].some((extension) => known.has(plain + extension))
}

/** The anchors that GitHub makes of the headings of a page. */
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

const proseOf = (text: string) => text.replace(/^ *```.*?^ *```/gms, "")

/** The links of a page to the project itself. */
const linksIn = (text: string): ReadonlyArray<string> =>
  Array.from(proseOf(text).matchAll(/\]\(([^)\s]+)\)/g), ([, target = ""]) => target).filter(
    (target) => !/^https?:/.test(target)
  )

/** The files and folders that a page names and the project does not have. */
const deadReferences = (page: string, text: string): ReadonlyArray<string> => {
  const code = Array.from(proseOf(text).matchAll(/`([^`\n]+)`/g), ([, words = ""]) => words)
  return [
    ...linksIn(text).filter((target) => !isLinkAlive(page, text, target)),
    ...code.filter((words) => !isPathAlive(page, words))
  ]
}

/** Tables whose first cell in a row is the number of a decision, threat, fault, reading or law. */
const tables = ["test/README.md", "test/drill/README.md"]

const numbers = (text: string) => text.match(/\b[DLTRFEQ]\d+[a-z]?\b/g) ?? []

const defined = new Set(tables.flatMap((page) => read(page).match(/^\|[^|]*\|/gm) ?? []).flatMap(numbers))

/** Cited numbers that no table has. A string of numbers only is an argument of a program, and cites nothing. */
const unknownNumbers = (text: string) =>
  numbers(text.replace(/"[DLTRFEQ\d,]+"/g, "")).filter((number) => !defined.has(number))

/** Whether `npm pack` includes a file beside the build. */
const isPacked = (path: string) =>
  ["README.md", "SECURITY.md", "CHANGELOG.md", "package.json"].includes(path) ||
  /^(deploy|docs|examples)\/(?!.*\.ts$)/.test(path)

/** Links of a packed page to files outside the package, which its reader cannot follow. */
const unpackedLinks = (page: string, text: string) =>
  linksIn(text).filter((target) => {
    const [path = ""] = target.split("#")
    return path !== "" && !isPacked(normalize(join(dirname(page), path)))
  })

const sorted = (words: ReadonlyArray<string>) => words.toSorted()

const rows = Array.from(
  read("docs/contributing.md").matchAll(/^\| `([\w./]+)` +\|[^|]*\|([^|]*)\|$/gm),
  ([, room = "", cell = ""]) => ({
    room,
    imports: Array.from(cell.matchAll(/`([\w./]+)(\/\*)?`/g)).flatMap(([, other = "", all]) =>
      all === undefined ? [other] : rooms.filter((one) => one.startsWith(`${other}/`))
    )
  })
)

/** How an import in one room begins that leads to another. */
const leadingTo = (room: string, other: string) => {
  const path = relative(room, other)
  return path.startsWith("..") ? `${path}/` : `./${path}/`
}

/** The lines of imports that the linter refuses in a file. */
const refusedIn = async (path: string, imports: string) => {
  const { rules } = (await new ESLint({ cwd: project }).calculateConfigForFile(path)) as Linter.Config
  const overrideConfig = { rules: { "no-restricted-imports": rules?.["no-restricted-imports"] ?? "off" } }
  const [result] = await new ESLint({ overrideConfigFile: true, overrideConfig }).lintText(imports)
  return result?.messages.map(({ line }) => line - 1)
}

/** The checks of documents, each with a control. */
export const documentChecks: ReadonlyArray<Check> = [
  {
    title: "the documents name no file, folder or heading that does not exist",
    run: () => {
      const wanted = ["CHANGELOG.md", "README.md", "SECURITY.md", "docs/settings.md", "test/README.md"]
      assert.deepEqual(
        wanted.filter((page) => !documents.includes(page)),
        []
      )
      assert.deepEqual(
        documents.flatMap((page) => deadReferences(page, read(page)).map((reference) => `${page}: ${reference}`)),
        []
      )
    },
    control: () => {
      const dead = ["test/service/Gone.test.ts", "src/utils", "crypto/Gone", "Gone.test.ts", "docs/gone"]
      const planted = dead.map((path) => `\`${path}\``).join(", ")
      assert.deepEqual(deadReferences("SECURITY.md", `${planted}, \`src/domain\``), dead)
      const links = ["gone.md", "README.md#gone", "#gone"]
      assert.deepEqual(deadReferences("SECURITY.md", links.map((target) => `[it](${target})`).join()), links)
    }
  },
  {
    title: "the documents in the package link only to each other",
    run: () => {
      assert.deepEqual(
        documents
          .filter(isPacked)
          .flatMap((page) => unpackedLinks(page, read(page)).map((target) => `${page}: ${target}`)),
        []
      )
    },
    control: () =>
      assert.deepEqual(
        unpackedLinks("docs/api.md", "[it](../src/bin.js), [it](../examples/gateway.ts), [it](keys.md)"),
        ["../src/bin.js", "../examples/gateway.ts"]
      )
  },
  {
    title: "cited decisions, threats, faults, readings and laws are in the tables of test/README.md and of the drill",
    run: () => {
      const known = ["D1", "D48", "L1", "L12", "T1", "T12", "R1", "R15", "E1", "E22", "Q1", "Q30"]
      assert.deepEqual(
        known.filter((number) => !defined.has(number)),
        []
      )
      const texts = files.filter((path) => /^(src|test)\/.*\.[jt]s$|\.md$/.test(path))
      assert.deepEqual(
        texts.flatMap((path) => unknownNumbers(read(path)).map((number) => `${path}: ${number}`)),
        []
      )
    },
    control: () => {
      const planted = ["D", "L", "T", "R", "F", "E", "Q"].map((letter) => letter.concat("99"))
      assert.deepEqual(unknownNumbers(`A create is refused (${planted.join()}, D7)`), planted)
    }
  },
  {
    title: "each law of routing is cited by the title of a test",
    run: () => {
      const texts = files.filter((path) => /^test\/.*\.ts$/.test(path) && !path.includes("PlantedFaults")).map(read)
      const titles = texts.flatMap((text) => text.match(/ \([^()\n]*\)(?=["`])/g) ?? [])
      const laws = read("test/domain/routing/planLaws.ts").match(/^ {2}Q\d+(?=: \{)/gm) ?? []
      const cited = new Set([...titles, ...laws].flatMap(numbers))
      const definedLaws = [...defined].filter((number) => number.startsWith("Q"))
      assert.equal(definedLaws.length, 32)
      assert.deepEqual(
        definedLaws.filter((law) => !cited.has(law)),
        []
      )
    }
  },
  {
    title: "the table of rooms in docs/contributing.md says what the linter allows",
    run: async () => {
      assert.deepEqual(sorted(rows.map(({ room }) => room)), sorted(rooms))
      for (const { imports, room } of rows) {
        const others = rooms.filter((other) => other !== room)
        const program = others.map((other) => `import "${leadingTo(room, other)}Any.ts"`).join("\n")
        const refused = (await refusedIn(join("src", room, "Any.ts"), program))?.map((line) => others[line])
        assert.deepEqual(sorted(imports), sorted(others.filter((other) => refused?.includes(other) === false)), room)
      }
    },
    control: async () => {
      const planted = 'import "./Credential.ts"\nimport "./routing/Plan.ts"'
      assert.deepEqual(await refusedIn("src/domain/Any.ts", planted), [1])
      const inner = 'import "../Credential.ts"\nimport "./Plan.ts"'
      assert.deepEqual(await refusedIn("src/domain/routing/Any.ts", inner), [])
      assert.deepEqual(await refusedIn("src/sql/planted/Any.ts", 'import "../schema.ts"\nimport "effect"'), [0])
    }
  }
]
