import { execFile } from "node:child_process"
import { join, resolve } from "node:path"
import { promisify } from "node:util"
import { makeOnce } from "../../support/process/makeOnce.ts"
import { startServer } from "../Target.ts"

const version = "1.15.2"
const directory = resolve("node_modules/.cache/rivals", `portkey-${version}`)

const install = (prefix: string) =>
  promisify(execFile)("npm", [
    ...["install", "--prefix", prefix, "--ignore-scripts", "--no-audit", "--no-fund"],
    `@portkey-ai/gateway@${version}`
  ])

/** Starts Portkey's gateway from npm, which is fetched once. */
export const startPortkey = async () => {
  await makeOnce(directory, install)
  const program = join(directory, "node_modules/@portkey-ai/gateway/build/start-server.js")
  const server = await startServer("Portkey", (port) => [process.execPath, program, "--headless", `--port=${port}`], {
    ...{ env: { ...process.env, NODE_ENV: "production" }, stdio: ["ignore", "ignore", "inherit"] }
  })
  return { ...server, versions: version }
}
