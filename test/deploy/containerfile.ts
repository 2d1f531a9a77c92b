import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { type Check, shipped } from "./Check.ts"

const project = join(shipped, "..")

interface Instruction {
  readonly name: string
  readonly rest: string
}

const instructionsOf = (text: string): ReadonlyArray<Instruction> =>
  text
    .replaceAll(/^#.*\n/gm, "")
    .replaceAll(/\\\n/g, " ")
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const [, name = "", rest = ""] = /^\s*(\S+)\s*(.*)$/.exec(line) ?? []
      return { name: name.toUpperCase(), rest: rest.trim() }
    })

/** The words of the exec form; none of the form that starts a shell. */
const wordsOf = (rest: string): ReadonlyArray<string> => {
  try {
    return JSON.parse(rest) as ReadonlyArray<string>
  } catch {
    return []
  }
}

const ignored = readFileSync(join(project, ".dockerignore"), "utf8").split("\n")

/** Everything is kept out of the build that is not named. */
const isSent = (path: string) => existsSync(join(project, path)) && ignored.includes(`!${path}`)

/** The rules of the image that need no program to be checked. */
export const containerfile: Check = {
  piece: "Containerfile",
  run: (deploy) =>
    Effect.sync(() => {
      const all = instructionsOf(readFileSync(join(deploy, "Containerfile"), "utf8"))
      const last = all.slice(all.findLastIndex(({ name }) => name === "FROM"))
      const lastOf = (wanted: string) => last.findLast(({ name }) => name === wanted)?.rest ?? ""
      const image = all.find(({ name, rest }) => name === "ARG" && rest.startsWith("NODE_IMAGE="))?.rest ?? ""
      const sources = all.flatMap(({ name, rest }) =>
        name === "COPY" && !rest.startsWith("--from") ? rest.split(/\s+/).slice(0, -1) : []
      )
      const problems = [
        [/:24\.\d+\.\d+-\w+-slim$/.test(image), "the base is not pinned to a version"],
        [all.filter(({ name }) => name === "FROM").length > 1, "there is one stage only"],
        [/^[1-9]\d*:[1-9]\d*$/.test(lastOf("USER")), "the last stage does not run as a user by number"],
        [wordsOf(lastOf("ENTRYPOINT"))[0] === "node", "process 1 is not Node.js"],
        [wordsOf(lastOf("CMD")).join() === "serve", "the image does not serve by default"],
        [/^RUN rm -rf .*\/npm /.test(last.map(({ name, rest }) => `${name} ${rest}`)[1] ?? ""), "npm stays"],
        ...sources.map((path) => [isSent(path), `${path} is not sent to the build`] as const)
      ] satisfies ReadonlyArray<readonly [boolean, string]>
      return { problems: problems.flatMap(([holds, otherwise]) => (holds ? [] : [otherwise])) }
    }),
  mistakes: [
    { file: "Containerfile", text: "USER 1000:1000", instead: "USER node" },
    { file: "Containerfile", text: 'ENTRYPOINT ["node",', instead: 'ENTRYPOINT ["npm",' },
    {
      file: "Containerfile",
      text: 'ENTRYPOINT ["node", "/app/dist/bin.js"]',
      instead: "ENTRYPOINT node /app/dist/bin.js"
    },
    { file: "Containerfile", text: "COPY src src", instead: "COPY test test" },
    { file: "Containerfile", text: "node:24.21.0-trixie-slim\n\n", instead: "node:latest\n\n" }
  ]
}
