import { join } from "node:path"
import { runNode, runProgram } from "./runNode.ts"

/** The program from its sources. */
export const byokSource = join(import.meta.dirname, "../../../src/bin.js")

/** The bundled program, as it is shipped; outside of Vitest its sources. */
export const byokScript = process.env["BYOK_TEST_PROGRAM"] ?? byokSource

/** A data directory that cannot exist: a command without a database fails. */
export const nowhere = { BYOK_DATA_DIR: "/dev/null/nowhere" }

/** Runs the command line as a process of its own. */
export const runByok = (args: ReadonlyArray<string>, variables: Record<string, string> = {}) =>
  runNode([byokScript, ...args], { variables: { ...nowhere, ...variables } })

/** Runs commands in a shell that has the command line as the function `byok`, until one fails. */
export const runShell = (
  commands: string,
  { variables = {}, ...place }: { readonly cwd?: string; readonly variables?: Record<string, string> }
) => {
  const byok = `byok() { '${process.execPath}' '${byokScript}' "$@"; }`
  const options = { ...place, variables: { ...nowhere, ...variables } }
  return runProgram("/bin/sh", ["-e", "-c", `${byok}\n${commands}`], options)
}
