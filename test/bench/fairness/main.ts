import { spawn } from "node:child_process"
import { randomBytes, randomUUID } from "node:crypto"
import { once } from "node:events"
import { Agent, get } from "node:http"
import { setTimeout as delay } from "node:timers/promises"
import { formatApiKey } from "../../../src/port/ApiKey.ts"
import { addAccount, issue, onBed, seededId } from "../Bed.ts"
import { service, startTarget } from "../Target.ts"

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

onBed("fairness", 1000, async (bed) => {
  const quiet = { account: randomUUID(), key: formatApiKey(randomBytes(32), true) }
  await addAccount(bed.client, quiet.account)
  await issue(bed.client, quiet.account, [quiet.key])
  const target = await startTarget(service, bed)
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
})
