import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { broken, type Check, shipped } from "./Check.ts"

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

/** The words of a command in exec form; empty for the shell form. */
const wordsOf = (rest: string): ReadonlyArray<string> => {
  try {
    return JSON.parse(rest) as ReadonlyArray<string>
  } catch {
    return []
  }
}

const ignored = readFileSync(join(project, ".dockerignore"), "utf8").split("\n")

/** Whether the build gets a path: it gets only paths that the ignore file names. */
const isSent = (path: string) => existsSync(join(project, path)) && ignored.includes(`!${path}`)

/** The rules of the image that need no program to be checked. */
export const containerfile: Check = {
  piece: "Containerfile",
  run: (deploy) => {
    const all = instructionsOf(readFileSync(join(deploy, "Containerfile"), "utf8"))
    const last = all.slice(all.findLastIndex(({ name }) => name === "FROM"))
    const lastOf = (wanted: string) => last.findLast(({ name }) => name === wanted)?.rest ?? ""
    const image = all.find(({ name, rest }) => name === "ARG" && rest.startsWith("NODE_IMAGE="))?.rest ?? ""
    const sources = all.flatMap(({ name, rest }) =>
      name === "COPY" && !rest.startsWith("--from") ? rest.split(/\s+/).slice(0, -1) : []
    )
    return broken(
      [/:24\.\d+\.\d+-\w+-slim$/.test(image), "the base is not pinned to a version"],
      [all.filter(({ name }) => name === "FROM").length > 1, "there is one stage only"],
      [/^[1-9]\d*:[1-9]\d*$/.test(lastOf("USER")), "the last stage does not run as a user by number"],
      [wordsOf(lastOf("ENTRYPOINT"))[0] === "node", "process 1 is not Node.js"],
      [wordsOf(lastOf("CMD")).join() === "serve", "the image does not serve by default"],
      [/^RUN rm -rf .*\/npm /.test(last.map(({ name, rest }) => `${name} ${rest}`)[1] ?? ""), "npm stays"],
      ...sources.map((path) => [isSent(path), `${path} is not sent to the build`] as const)
    )
  },
  mistakes: [
    ["Containerfile", "USER 1000:1000", "USER node"],
    ["Containerfile", 'ENTRYPOINT ["node",', 'ENTRYPOINT ["npm",'],
    ["Containerfile", 'ENTRYPOINT ["node", "/app/dist/bin.js"]', "ENTRYPOINT node /app/dist/bin.js"],
    ["Containerfile", "COPY src src", "COPY test test"],
    ["Containerfile", "node:24.21.0-trixie-slim\n\n", "node:latest\n\n"]
  ]
}
