import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { Effect } from "effect"
import { freePort } from "../support/database/listen.ts"
import { statusOf } from "./statusOf.ts"
import { type Bed, seededId } from "./Bed.ts"

/** A server under load, in a process of its own. */
export interface Target {
  readonly name: string
  readonly bed: Bed
  readonly url: string
  readonly pid: number
  /** From spawning the process to the first 200 of get, in milliseconds. */
  readonly startup: number
  readonly stop: () => Promise<void>
}

export interface Program {
  readonly name: string
  readonly arguments: ReadonlyArray<string>
  readonly environment?: Readonly<Record<string, string>>
}

export const keyring = `kek-service:${randomBytes(32).toString("base64")}`

/** The service from its sources. */
export const service: Program = {
  name: "byok",
  arguments: ["src/bin.js", "serve"],
  environment: { BYOK_KEYRING: keyring, LOG_LEVEL: "error", MAX_CREDENTIALS: "5000000" }
}

const end = async (child: ChildProcess) => {
  const exited = once(child, "exit")
  child.kill("SIGTERM")
  await exited
}

/** The service as it is installed: one bundle, which takes less time and memory than its sources. */
export const builtIn = (checkout: string, name = service.name): Program => ({
  ...service,
  name,
  arguments: [join(checkout, "dist/bin.js"), "serve"]
})

/** Starts a program and waits for its first 200. What it prints and logs goes to open files, if there are any. */
export const startTarget = async (
  program: Program,
  bed: Bed,
  output: number | "ignore" = "ignore",
  log: number | "inherit" = "inherit"
): Promise<Target> => {
  const port = await Effect.runPromise(freePort)
  const url = `http://127.0.0.1:${port}`
  const began = performance.now()
  const child = spawn(process.execPath, program.arguments, {
    env: { ...process.env, ...program.environment, DATABASE_URL: bed.url, PORT: String(port), NODE_ENV: "production" },
    stdio: ["ignore", output, log]
  })
  const kill = () => child.kill()
  process.once("exit", kill)
  child.once("exit", () => process.off("exit", kill))
  const [first, headers] = [`${url}/api/v1/byok/${seededId(1)}`, { authorization: `Bearer ${bed.key}` }]
  while ((await statusOf(first, headers)) !== 200) {
    if (child.exitCode !== null) throw new Error(`${program.name} has ended with ${child.exitCode}`)
    await delay(5)
  }
  const startup = performance.now() - began
  return { name: program.name, bed, url, pid: child.pid ?? 0, startup, stop: () => end(child) }
}
