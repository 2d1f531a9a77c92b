import { spawn } from "node:child_process"
import { createHash, randomBytes, randomUUID } from "node:crypto"
import { once } from "node:events"
import { Agent, get } from "node:http"
import { setTimeout as delay } from "node:timers/promises"
import { formatApiKey } from "../../../src/port/ApiKey.ts"
import { makeBed, seededId, startPostgres } from "../Bed.ts"
import { startTarget } from "../Target.ts"

/** Seconds of each phase, gets a second of the quiet account, and connections of each nuisance. */
const [seconds, rate, connections] = [8, 50, 64]

/** As a program of its own, this file is the nuisance: gets in a closed loop, with one token or with made-up ones. */
const [, , url = "", token = ""] = process.argv
if (url !== "") {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const one = () =>
    new Promise<void>((resolve) => {
      const authorization = `Bearer ${token === "" ? formatApiKey(randomBytes(32), true) : token}`
      get(`${url}/api/v1/byok/${seededId(1)}`, { agent, headers: { authorization } }, (response) => {
        response.resume().once("end", resolve)
      }).once("error", () => resolve())
    })
  const until = performance.now() + 1000 * seconds
  await Promise.all(
    Array.from({ length: connections }, async () => {
      while (performance.now() < until) await one()
    })
  )
  process.exit()
}

const environment = { BYOK_KEYRING: `kek-service:${randomBytes(32).toString("base64")}`, LOG_LEVEL: "warn" }

const postgres = await startPostgres()
try {
  const bed = await makeBed(postgres, "fairness", 1000)
  const quiet = { account: randomUUID(), workspace: randomUUID(), key: formatApiKey(randomBytes(32), true) }
  const hash = createHash("sha256").update(quiet.key).digest()
  await bed.client.query("INSERT INTO accounts VALUES ($1, 'quiet', now())", [quiet.account])
  await bed.client.query("INSERT INTO workspaces VALUES ($2, $1, 'quiet', true, now())", [
    quiet.account,
    quiet.workspace
  ])
  await bed.client.query("INSERT INTO api_keys VALUES ($2, $1, 'quiet', true, now())", [quiet.account, hash])
  const target = await startTarget({ name: "byok", arguments: ["src/bin.js", "serve"], environment }, bed)
  const agent = new Agent({ keepAlive: true })

  /** A get of the quiet account: its status and how long it took, in milliseconds. The credential is another account's. */
  const ask = () =>
    new Promise<{ readonly status: number; readonly took: number }>((resolve) => {
      const began = performance.now()
      const headers = { authorization: `Bearer ${quiet.key}` }
      get(`${target.url}/api/v1/byok/${seededId(1)}`, { agent, headers }, (response) => {
        response.resume().once("end", () => {
          resolve({ status: response.statusCode ?? 0, took: performance.now() - began })
        })
      }).once("error", () => resolve({ status: 0, took: performance.now() - began }))
    })

  const phase = async (name: string, ...tokens: ReadonlyArray<string>) => {
    const nuisances = tokens.map((token) =>
      spawn(process.execPath, ["test/bench/fairness/main.ts", target.url, token], { stdio: "inherit" })
    )
    if (nuisances.length > 0) await delay(1000)
    const answers: Array<Awaited<ReturnType<typeof ask>>> = []
    for (const end = performance.now() + 1000 * (seconds - 2); performance.now() < end; await delay(1000 / rate)) {
      answers.push(await ask())
    }
    for (const child of nuisances) if (child.exitCode === null) await once(child, "exit")
    const sorted = answers.map(({ took }) => took).sort((one, other) => one - other)
    const at = (part: number) => Number((sorted[Math.floor(part * sorted.length)] ?? 0).toFixed(2))
    const refused = answers.filter(({ status }) => status === 503).length
    return { phase: name, gets: answers.length, p50: at(0.5), p99: at(0.99), refused }
  }

  await phase("warm-up", bed.key)
  console.table([
    await phase("calm"),
    await phase("one noisy account", bed.key),
    await phase("unknown tokens", ""),
    await phase("both", bed.key, "")
  ])
  agent.destroy()
  await target.stop()
  await bed.client.end()
} finally {
  await postgres.stop()
}
