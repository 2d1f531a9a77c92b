import { spawn, type SpawnOptions } from "node:child_process"
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { connect, type NetConnectOpts } from "node:net"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { Effect } from "effect"
import { freePort } from "../support/database/listen.ts"
import { statusOf } from "./statusOf.ts"
import { type Bed, seededId } from "./Bed.ts"

/** A program in a process of its own. */
export interface Running {
  readonly pid: number
  readonly stop: () => Promise<void>
}

/** A server under load. */
export interface Target extends Running {
  readonly name: string
  readonly bed: Bed
  readonly url: string
  /** From spawning the process to the first 200 of get, in milliseconds. */
  readonly startup: number
}

export interface Program {
  readonly name: string
  readonly arguments: ReadonlyArray<string>
  readonly environment?: Readonly<Record<string, string>>
}

/** The most credentials of one provider in a workspace: the largest value of `MAX_CREDENTIALS`. */
export const maxCredentials = 1000

export const keyring = `kek-service:${randomBytes(32).toString("base64")}`

/** The service from its sources. */
export const service: Program = {
  name: "byok",
  arguments: ["src/bin.js", "serve"],
  environment: { BYOK_KEYRING: keyring, LOG_LEVEL: "error", MAX_CREDENTIALS: String(maxCredentials) }
}

/** Starts a program and waits until it is ready. Stops it when this process ends, if it still runs. */
export const startProcess = async (
  name: string,
  [command = "", ...given]: ReadonlyArray<string>,
  options: SpawnOptions,
  isReady: () => Promise<boolean>
): Promise<Running> => {
  const child = spawn(command, given, options)
  const kill = () => child.kill(options.killSignal)
  process.once("exit", kill)
  child.once("exit", () => process.off("exit", kill))
  while (!(await isReady())) {
    if (child.exitCode !== null) throw new Error(`${name} has ended with ${child.exitCode}`)
    await delay(5)
  }
  const stop = async () => {
    const exited = once(child, "exit")
    kill()
    await exited
  }
  return { pid: child.pid ?? 0, stop }
}

/** Whether a server listens at an address. */
export const isListening = (address: NetConnectOpts) =>
  new Promise<boolean>((resolve) => {
    const socket = connect(address, () => resolve(true))
    socket.once("error", () => resolve(false)).once("connect", () => socket.destroy())
  })

/** Starts a server on a free port, and waits until it listens. */
export const startServer = async (
  name: string,
  commandAt: (port: number) => ReadonlyArray<string>,
  options: SpawnOptions
): Promise<Running & { readonly url: string }> => {
  const port = await Effect.runPromise(freePort)
  const running = await startProcess(name, commandAt(port), options, () => isListening({ host: "127.0.0.1", port }))
  return { ...running, url: `http://127.0.0.1:${port}` }
}

/** The service as it is installed: one bundle, which takes less time and memory than its sources. */
export const builtIn = (checkout: string, name = service.name): Program => ({
  ...service,
  name,
  arguments: [join(checkout, "dist/bin.js"), "serve"]
})

/** Starts a program and waits for its first 200. Its output and log go to the open files, if there are any. */
export const startTarget = async (
  program: Program,
  bed: Bed,
  output: number | "ignore" = "ignore",
  log: number | "inherit" = "inherit"
): Promise<Target> => {
  const port = await Effect.runPromise(freePort)
  const url = `http://127.0.0.1:${port}`
  const began = performance.now()
  const env = {
    ...process.env,
    ...program.environment,
    DATABASE_URL: bed.url,
    PORT: String(port),
    NODE_ENV: "production"
  }
  const [first, headers] = [`${url}/api/v1/byok/${seededId(1)}`, { authorization: `Bearer ${bed.key}` }]
  const running = await startProcess(
    program.name,
    [process.execPath, ...program.arguments],
    { env, stdio: ["ignore", output, log] },
    async () => (await statusOf(first, headers)) === 200
  )
  return { ...running, name: program.name, bed, url, startup: performance.now() - began }
}
