import { randomBytes, randomUUID } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { Agent, get } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { parseArgs } from "node:util"
import { Effect, Exit, Scope } from "effect"
import { formatApiKey } from "../../../src/runtime/ApiKey.ts"
import { faultyProxy } from "../../faults/FaultyProxy.ts"
import { account_id, addAccount, type Bed, issue, onBed, seededId, workspace_id } from "../Bed.ts"
import { explainOver, routeOver } from "../gateway/Routes.ts"
import { body as given, type Load, loadOn, type Operation, put } from "../Load.ts"
import { cpuOfTree } from "../Process.ts"
import { medianOf } from "../Report.ts"
import { service, startTarget, type Target } from "../Target.ts"

const { values } = parseArgs({ options: { only: { type: "string" }, rounds: { type: "string", default: "3" } } })
const [rounds, seconds, connections] = [Number(values.rounds), 4, 64]

/** Milliseconds between two gets of the quiet account. */
const pause = 5

const newKeys = (count: number) => Array.from({ length: count }, () => formatApiKey(randomBytes(32), "management"))

/** Keys that were never issued. */
const madeUp = newKeys(10_000)

interface Answer {
  readonly status: number
  /** In milliseconds. */
  readonly took: number
}

const agent = new Agent({ keepAlive: true })

/** A get of a credential of the bed's account. */
const ask = (url: string, key: string) =>
  new Promise<Answer>((resolve) => {
    const began = performance.now()
    const answer = (status = 0) => resolve({ status, took: performance.now() - began })
    get(`${url}/api/v1/byok/${seededId(1)}`, { agent, headers: { authorization: `Bearer ${key}` } }, (response) => {
      response.resume().once("end", () => answer(response.statusCode))
    }).once("error", () => answer())
  })

/** Sends gets for some seconds, one after the other. An account gets 404 for a credential of another one. */
const askFor = async (seconds: number, url: string, key: string) => {
  const answers: Array<Answer> = []
  for (const end = performance.now() + 1000 * seconds; performance.now() < end; await delay(pause)) {
    answers.push(await ask(url, key))
  }
  const sorted = answers.map(({ took }) => took).sort((one, other) => one - other)
  const at = (part: number) => sorted[Math.floor(part * sorted.length)] ?? Number.NaN
  return { p50: at(0.5), p99: at(0.99), failed: answers.filter(({ status }) => status !== 404).length }
}

const report: Array<Record<"case" | "seen" | "wanted" | "verdict", string>> = []
const judge = (name: string, seen: string, wanted: string, holds: boolean) => {
  report.push({ case: name, seen, wanted, verdict: holds ? "as wanted" : "NOT" })
}

/** Figures of contenders, taken in turn: the median of each, and of the ratio of two in the same round. */
const inTurn = async <Name extends string>(contenders: Readonly<Record<Name, () => Promise<number>>>) => {
  const seen = new Map<string, Array<number>>()
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, measure] of Object.entries<() => Promise<number>>(contenders)) {
      const figure = await measure()
      if (round >= 0) seen.set(name, [...(seen.get(name) ?? []), figure])
    }
  }
  const of = (name: Name) => seen.get(name) ?? []
  return {
    median: (name: Name) => medianOf(of(name)),
    ratio: (name: Name, to: Name) => medianOf(of(name).map((figure, round) => figure / (of(to)[round] ?? Number.NaN)))
  }
}

const loadOf = (bed: Bed, target: Target, operation: Operation, other: Partial<Load> = {}) => ({
  ...loadOn(bed, target.url, { operation, connections, seconds }),
  ...other
})

const noisyAccounts = async (bed: Bed, quiet: string) => {
  const target = await startTarget(service, bed)
  const nuisances = {
    alone: [],
    "beside a noisy account": [{}],
    "beside made-up keys": [{ keys: madeUp }],
    "beside both": [{}, { keys: madeUp }]
  }
  const p50s: Record<string, Array<number>> = {}
  let failed = 0
  const contenders = Object.entries(nuisances).map(([name, others]) => [
    name,
    async () => {
      const noise = others.map((other) => put(loadOf(bed, target, "get", other)))
      await delay(500)
      const seen = await askFor(seconds - 1, target.url, quiet)
      await Promise.all(noise)
      failed += seen.failed
      ;(p50s[name] ??= []).push(seen.p50)
      return seen.p99
    }
  ])
  const { median, ratio: ratioOf } = await inTurn(
    Object.fromEntries(contenders) as Record<keyof typeof nuisances, () => Promise<number>>
  )
  const figures = (Object.keys(nuisances) as Array<keyof typeof nuisances>).map(
    (name) => `${name} ${medianOf(p50s[name] ?? []).toFixed(1)} / ${median(name).toFixed(1)}`
  )
  const ratio = ratioOf("beside a noisy account", "alone")
  judge(`a quiet account, p50 / p99 in ms: ${figures.join(", ")}`, ratio.toFixed(2), "p99 ≤ 3", ratio <= 3)
  judge("its gets that failed", String(failed), "0", failed === 0)
  await target.stop()
}

/** Sends a get with a made-up key a few times a second while another load is measured. */
const besideJunk = async <A>(url: string, measured: Promise<A>) => {
  let going = true
  const junk = (async () => {
    while (going) {
      await ask(url, newKeys(1)[0] ?? "")
      await delay(400)
    }
  })()
  const result = await measured
  going = false
  await junk
  return result
}

const junk = async (bed: Bed) => {
  const scope = Scope.makeUnsafe()
  const proxy = await Effect.runPromise(Scope.provide(faultyProxy(bed.url), scope))
  proxy.delay(10)
  const target = await startTarget(service, { ...bed, url: proxy.url })
  for (const operation of ["get", "create"] as const) {
    const measure = async () => {
      const seen = await put(loadOf(bed, target, operation))
      return seen.requests / seen.seconds
    }
    const { median, ratio: ratioOf } = await inTurn({
      without: measure,
      with: () => besideJunk(target.url, measure())
    })
    const ratio = ratioOf("with", "without")
    const name = `${operation}s a second, the database 10 ms away, without and with a junk request each 0.4 s`
    const figures = `${median("without").toFixed(0)}, ${median("with").toFixed(0)}`
    judge(`${name}: ${figures}`, ratio.toFixed(2), "≥ 0.95", ratio >= 0.95)
  }
  await target.stop()
  await Effect.runPromise(Scope.close(scope, Exit.void))
}

const activeKeys = async (bed: Bed) => {
  const target = await startTarget(service, bed)
  const keys = newKeys(30_000)
  await issue(bed.client, account_id, keys)
  const measure = async (keys: ReadonlyArray<string>) => {
    const seen = await put(loadOf(bed, target, "get", { keys, seconds: 8 }))
    if (seen.errors > 0) throw new Error(`${seen.errors} gets have failed`)
    return seen.requests / seen.seconds
  }
  const { median, ratio: ratioOf } = await inTurn({
    few: () => measure(keys.slice(0, 1000)),
    many: () => measure(keys)
  })
  const ratio = ratioOf("many", "few")
  const figures = `${median("few").toFixed(0)}, ${median("many").toFixed(0)}`
  judge(`gets a second with 1,000 and 30,000 active keys: ${figures}`, ratio.toFixed(2), "≥ 0.8", ratio >= 0.8)
  await target.stop()
}

const startedInFlood = async (bed: Bed) => {
  const keys = newKeys(36)
  await issue(bed.client, account_id, keys)
  for (const connections of [64, 512]) {
    const target = await startTarget(service, bed)
    const flood = put(loadOf(bed, target, "get", { keys: madeUp, connections, seconds: 6 }))
    await delay(500)
    const asked = keys.map(async (key, n) => {
      await delay(100 * n)
      return ask(target.url, key)
    })
    const answers = await Promise.all(asked)
    await flood
    await target.stop()
    const good = answers.filter(({ status, took }) => status === 200 && took < 1000).length
    const slowest = Math.max(...answers.map(({ took }) => took)).toFixed(0)
    const name = `keys new to an instance that started in a flood of ${connections} connections with made-up keys`
    judge(`${name}, the slowest in ${slowest} ms`, `${good} of 36`, "36 within 1 s", good === 36)
  }
}

/** An account with a management key. */
const addTenant = async ({ client }: Bed) => {
  const [account, key = ""] = [randomUUID(), ...newKeys(1)]
  await addAccount(client, account)
  await issue(client, account, [key])
  return { account, key }
}

const create = async ({ url }: Target, key: string, provider: string) => {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
  const body = JSON.stringify({ ...(JSON.parse(given) as object), provider })
  const { status } = await fetch(`${url}/api/v1/byok`, { method: "POST", headers, body })
  if (status !== 201) throw new Error(`A create has answered ${status}`)
}

const largePlans = async (bed: Bed) => {
  const directory = mkdtempSync(join(tmpdir(), "byok-fairness-"))
  const socket = join(directory, "socket")
  const environment = { ...service.environment, BYOK_GATEWAY_SOCKET: socket }
  const target = await startTarget({ ...service, environment }, bed)
  const [noisy, other] = [await addTenant(bed), await addTenant(bed)]
  await create(target, other.key, "azure")
  for (let n = 0; n < 256; n += 16) {
    await Promise.all(Array.from({ length: 16 }, () => create(target, noisy.key, "anthropic")))
  }
  await bed.client.query(
    `INSERT INTO credential_parkings
     SELECT account_id, id, 'model/' || n, 1, 'rate_limited', 1, now() + interval '30 minutes', now(), 0
     FROM credentials, generate_series(0, 99) AS n WHERE account_id = $1`,
    [noisy.account]
  )
  await bed.client.query("UPDATE pools SET health = health + 1 WHERE account_id = $1", [noisy.account])
  await bed.client.query("VACUUM ANALYZE")
  const plan = (connections: number) => put(loadOf(bed, target, "plan", { key: noisy.key, connections }))
  await plan(1)
  const before = cpuOfTree(target.pid)
  const { requests } = await plan(1)
  const each = (cpuOfTree(target.pid) - before) / requests / 1000
  judge("an explanation of a plan of 256 keys, ms of CPU", each.toFixed(2), "≤ 4", each <= 4)
  const beside = (connections: number) => async () => {
    const plans = connections === 0 ? undefined : plan(connections)
    await delay(500)
    const routes = await routeOver(socket, [other.account], { connections: 1, rides: true, seconds: seconds - 1 })
    const seen = await plans
    if (routes.errors > 0 || (seen?.errors ?? 0) > 0) throw new Error("routes or plans have failed")
    return routes.p50
  }
  const { median, ratio: ratioOf } = await inTurn({ calm: beside(0), beside: beside(4) })
  const ratio = ratioOf("beside", "calm")
  const name = "routes of an account, calm and beside 4 clients that explain a plan of 256 keys of another, p50 in ms"
  judge(`${name}: ${median("calm").toFixed(2)}, ${median("beside").toFixed(2)}`, ratio.toFixed(2), "≤ 2", ratio <= 2)
  const besideRoutes = (explain: boolean) => async () => {
    const explained = explainOver(socket, noisy.account, { explain, connections: 8, seconds })
    await delay(500)
    const routes = await routeOver(socket, [other.account], { connections: 1, rides: true, seconds: seconds - 1 })
    if (routes.errors > 0 || (await explained) === 0) throw new Error("routes have failed")
    return routes.p50
  }
  const turns = await inTurn({ calm: beside(0), explained: besideRoutes(true), exhausted: besideRoutes(false) })
  for (const kind of ["explained", "exhausted"] as const) {
    const ratio = turns.ratio(kind, "calm")
    const name = `routes of an account, calm and beside 8 clients whose requests over 256 keys are ${kind}, p50 in ms`
    judge(
      `${name}: ${turns.median("calm").toFixed(2)}, ${turns.median(kind).toFixed(2)}`,
      ratio.toFixed(2),
      "≤ 4",
      ratio <= 4
    )
  }
  await target.stop()
  rmSync(directory, { recursive: true })
}

const fullPools = async (bed: Bed) => {
  const target = await startTarget(service, bed)
  const [noisy, full, other] = [await addTenant(bed), await addTenant(bed), await addTenant(bed)]
  await create(target, full.key, "anthropic")
  await bed.client.query("UPDATE pools SET members = 5000000 WHERE account_id = $1", [full.account])
  const beside = (key: string) => async () => {
    const creates = put(loadOf(bed, target, "create", { key, connections: 4 }))
    const { errors, requests, seconds } = await put(loadOf(bed, target, "create", { key: other.key, connections: 16 }))
    if (errors > 0) throw new Error(`${errors} creates have failed`)
    await creates
    return requests / seconds
  }
  const { median, ratio: ratioOf } = await inTurn({ valid: beside(noisy.key), full: beside(full.key) })
  const ratio = ratioOf("full", "valid")
  const figures = `${median("valid").toFixed(0)}, ${median("full").toFixed(0)}`
  const name =
    "creates a second of an account beside 4 clients of another, into a pool with room and into one that is full"
  judge(`${name}: ${figures}`, ratio.toFixed(2), "≥ 0.9", ratio >= 0.9)
  await target.stop()
}

const largeLists = async (bed: Bed, quiet: string) => {
  const target = await startTarget(service, bed)
  const { account, key } = await addTenant(bed)
  await bed.client.query("INSERT INTO pools (account_id, workspace_id, provider) VALUES ($1, $1, 'anthropic')", [
    account
  ])
  await bed.client.query(
    `INSERT INTO credentials
     SELECT (json_populate_record(credentials, json_build_object('id', gen_random_uuid(), 'account_id', $1::text,
       'workspace_id', $1::text, 'allowed_models', long, 'allowed_user_ids', long))).*
     FROM credentials, (SELECT array_agg(repeat('x', 2500)) AS long FROM generate_series(1, 100)) AS lists
     WHERE account_id = $2 AND workspace_id = $3 ORDER BY sort_order LIMIT 100`,
    [account, account_id, workspace_id]
  )
  const lists = put(loadOf(bed, target, "list", { key, connections: 900, seeded: 100, seconds: 10 }))
  await delay(500)
  const { failed, p50, p99 } = await askFor(9, target.url, quiet)
  const { errors, requests } = await lists
  const name = `gets of a quiet account that failed beside 900 connections with lists of 25 MB (${requests} answered, ${errors} of them refused)`
  judge(`${name}, p50 / p99 in ms: ${p50.toFixed(0)} / ${p99.toFixed(0)}`, String(failed), "0", failed === 0)
  await target.stop()
}

onBed("fairness", 1000, async (bed) => {
  const { key: quiet } = await addTenant(bed)
  const cases = { noisyAccounts, activeKeys, largeLists, largePlans, fullPools, junk, startedInFlood }
  for (const [name, measure] of Object.entries(cases)) {
    if (values.only?.split(",").includes(name) !== false) await measure(bed, quiet)
  }
  agent.destroy()
  for (const { case: name, seen, verdict, wanted } of report) console.log(`${verdict}: ${name}: ${seen} (${wanted})`)
  if (report.some(({ verdict }) => verdict === "NOT")) process.exitCode = 1
})
