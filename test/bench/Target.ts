import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { createServer } from "node:net"
import { setTimeout as delay } from "node:timers/promises"
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

const freePort = async () => {
  const server = createServer().listen(0, "127.0.0.1")
  await once(server, "listening")
  const address = server.address()
  server.close()
  await once(server, "close")
  return typeof address === "object" && address !== null ? address.port : 0
}

const answers = async (url: string, key: string) => {
  try {
    const response = await fetch(`${url}/api/v1/byok/${seededId(1)}`, { headers: { authorization: `Bearer ${key}` } })
    await response.arrayBuffer()
    return response.status === 200
  } catch {
    return false
  }
}

const end = async (child: ChildProcess) => {
  const exited = once(child, "exit")
  child.kill("SIGTERM")
  await exited
}

/** Starts a program and waits for its first 200. What it prints goes to the open file `output`, if there is one. */
export const startTarget = async (
  program: Program,
  bed: Bed,
  output: number | "ignore" = "ignore"
): Promise<Target> => {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const began = performance.now()
  const child = spawn(process.execPath, program.arguments, {
    env: { ...process.env, ...program.environment, DATABASE_URL: bed.url, PORT: String(port), NODE_ENV: "production" },
    stdio: ["ignore", output, "inherit"]
  })
  while (!(await answers(url, bed.key))) {
    if (child.exitCode !== null) throw new Error(`${program.name} has ended with ${child.exitCode}`)
    await delay(5)
  }
  const startup = performance.now() - began
  return { name: program.name, bed, url, pid: child.pid ?? 0, startup, stop: () => end(child) }
}
