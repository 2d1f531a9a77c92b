import { spawn } from "node:child_process"
import { once } from "node:events"
import { cpSync, readFileSync, writeFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { dirname, join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { Worker } from "node:worker_threads"
import { Context, Effect, Layer } from "effect"
import { GatewayApi } from "../../src/contract/GatewayApi.ts"
import { Api } from "../../src/contract/TenantsApi.ts"
import { LinksApi } from "../../src/contract/LinksApi.ts"
import { peakMemory, resetPeakMemory } from "../bench/Process.ts"
import { createdId, minimal, unknownId } from "../support/http/Bodies.ts"
import { bearer, json, render, send } from "../support/http/HttpProbe.ts"
import { samplesIn, sumIn } from "../support/http/samplesIn.ts"
import { assert, describe, it, layerLive } from "../support/it.ts"
import { createAccount, textIn } from "../support/process/CommandLine.ts"
import { OnDatabase } from "../support/process/firstStart.ts"
import { byokScript } from "../support/process/runByok.ts"
import { eventually } from "../support/process/eventually.ts"
import { isRunning, managementUrl, startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { ask } from "../gateway/socket.ts"

const mebibyte = 1024 * 1024
const usualConnections = 60

/** Maximum growth of the process's memory, in MiB, with the default settings. */
const mostGrowth = 250

/** What may be left of it a collection after, in MiB, beside the cache. */
const mostLeft = 20

const longest = 200_000

/** Stands in a text for the number of its request, so that no other request has it. */
const number = "@@@@@@@@"
const textOf = (length: number, letter = "x") => number.padEnd(length, letter)
/** Four bytes a character. */
const texts = Array.from({ length: 100 }, () => textOf(8 + 2 * 240, "\u{1d4b3}"))
const key = `sk-${textOf(40_000)}`
const sealed_key = { enc: textOf(88), ciphertext: textOf(longest) }
const named = { name: textOf(longest) }
const creation = { ...minimal, key, name: textOf(255), allowed_models: texts, allowed_user_ids: texts }
const changes = { name: textOf(255), allowed_models: texts, allowed_user_ids: texts }
const routing = { model: textOf(255), user_id: textOf(longest), targets: [{ provider: "openai" }] }
const ids = Array.from(
  { length: 4_000 },
  (_, n) => `019ad5a0-6c1e-7b3a-9f52-${number}${n.toString(16).padStart(4, "0")}`
)
const order = { provider: "openai", ids }
const report = { status: 500, codes: Array.from({ length: 20 }, () => textOf(longest / 20)) }

/** The body with the longest texts of each endpoint that has one; `none` for the others. A new endpoint needs a row here. */
const none = undefined
const bodies: Record<"port" | "socket" | "links", Record<string, object | undefined>> = {
  port: {
    "POST /api/v1/byok": creation,
    "GET /api/v1/byok": none,
    "POST /api/v1/byok/plan": routing,
    "PUT /api/v1/byok/order": order,
    "GET /api/v1/byok/events": none,
    "GET /api/v1/byok/:id": none,
    "GET /api/v1/byok/:id/status": none,
    "PATCH /api/v1/byok/:id": changes,
    "DELETE /api/v1/byok/:id": none,
    "GET /health/live": none,
    "GET /health/ready": none
  },
  socket: {
    "POST /v1/attempts": { ...routing, reports: [{ attempt: textOf(30_000), status: 200 }] },
    "POST /v1/reports": { reports: [report] },
    "POST /v1/accounts": named,
    "GET /v1/accounts": none,
    "DELETE /v1/accounts/:account_id": none,
    "POST /v1/accounts/:account_id/workspaces": named,
    "GET /v1/accounts/:account_id/workspaces": none,
    "DELETE /v1/accounts/:account_id/workspaces/:workspace_id": none,
    "POST /v1/accounts/:account_id/api-keys": named,
    "GET /v1/accounts/:account_id/api-keys": none,
    "DELETE /v1/accounts/:account_id/api-keys/:hash": none,
    "POST /v1/accounts/:account_id/links": { purpose: "manage", return_url: `https://${textOf(longest)}` },
    "GET /v1/accounts/:account_id/links": none,
    "DELETE /v1/accounts/:account_id/links/:link_id": none,
    "GET /v1/events": none,
    "POST /v1/accounts/:account_id/credentials": creation,
    "GET /v1/accounts/:account_id/credentials": none,
    "POST /v1/accounts/:account_id/credentials/plan": routing,
    "PUT /v1/accounts/:account_id/credentials/order": order,
    "GET /v1/accounts/:account_id/credentials/events": none,
    "GET /v1/accounts/:account_id/credentials/:id": none,
    "GET /v1/accounts/:account_id/credentials/:id/status": none,
    "PATCH /v1/accounts/:account_id/credentials/:id": changes,
    "DELETE /v1/accounts/:account_id/credentials/:id": none,
    "GET /health/ready": none
  },
  links: {
    "GET /api/links/v1/link": none,
    "GET /api/links/v1/api-keys": none,
    // No token: a real one would take the place of the one that the other rows use.
    "PUT /api/links/v1/link/token": { token: textOf(255) },
    "POST /api/links/v1/byok": { provider: "openai", name: textOf(255), sealed_key },
    "PATCH /api/links/v1/byok/:id": { name: textOf(255), sealed_key },
    "GET /api/links/v1/byok": none,
    "POST /api/links/v1/byok/plan": routing,
    "PUT /api/links/v1/byok/order": order,
    "GET /api/links/v1/byok/events": none,
    "GET /api/links/v1/byok/:id": none,
    "GET /api/links/v1/byok/:id/status": none,
    "DELETE /api/links/v1/byok/:id": none
  }
}
type Way = keyof typeof bodies

const endpointsOf = (api: { readonly groups: object }) =>
  Object.values(api.groups as Record<string, { readonly endpoints: Record<string, { method: string; path: string }> }>)
    .flatMap(({ endpoints }) =>
      Object.values(endpoints).map(({ method, path }) => `${method} ${path.replace(/(.)\/$/, "$1")}`)
    )
    .sort()

describe("the table of requests in this test", () => {
  it.each([
    ["port", Api],
    ["socket", GatewayApi],
    ["links", LinksApi]
  ] as const)("has a row for each endpoint of the %s", (way, api) => {
    assert.deepStrictEqual(Object.keys(bodies[way]).sort(), endpointsOf(api))
  })
})

/** Collects garbage on SIGUSR2, and prints the remaining memory. */
const probe = `data:text/javascript,${encodeURIComponent(`process.on("SIGUSR2", () => {
  for (let n = 0; n < 3; n += 1) gc()
  const { external, heapUsed } = process.memoryUsage()
  process.stderr.write(\`collected \${heapUsed + external}\\n\`)
})`)}`

interface Bed {
  readonly url: string
  readonly socketPath: string
  readonly ids: Readonly<Record<string, string>>
  readonly keys: Readonly<Record<"noisy" | "link", string>>
}

const addressOf = ({ socketPath, url }: Bed, way: Way) =>
  way === "socket" ? { path: socketPath } : { host: "127.0.0.1", port: Number(new URL(url).port) }

/** The bytes of the n-th request to an endpoint of a way. */
const requestsTo = ({ ids, keys }: Bed, way: Way, endpoint: string) => {
  const [method = "", template = ""] = endpoint.split(" ")
  const path = template.replace(
    /:(\w+)/g,
    (_, name: string) => (method === "DELETE" ? undefined : ids[name]) ?? unknownId
  )
  const made = bodies[way][endpoint]
  const body = path === "/v1/attempts" ? { ...made, account_id: ids["account_id"] } : made
  const authorization =
    way === "socket" ? [] : [["Authorization", `Bearer ${way === "links" ? keys.link : keys.noisy}`] as const]
  const whole = render({
    method,
    path,
    headers: [
      ...authorization,
      ["X-Request-Id", textOf(100)],
      ["X-Pad", textOf(4_000)],
      ...(made === undefined ? [] : [json])
    ],
    body: body && JSON.stringify(body)
  }).toString("latin1")
  return (n: number) => Buffer.from(whole.replaceAll(number, String(n).padStart(number.length, "0")), "latin1")
}

/** Lets clients ask a service until the time is over, then closes their connections. */
interface Manner {
  readonly seconds: number
  readonly connections?: number
  /** Only memory is bounded: other clients wait in the kernel's queue. */
  readonly delaysOthers?: true
  readonly begin: (client: number, open: () => Socket, bytes: (n: number) => Buffer, until: number) => Promise<void>
}

const untilOver = (until: number) => delay(Math.max(0, until - performance.now()))

/** Waits for an event or the end of the connection, or until the time is over. */
const untilEvent = (socket: Socket, event: "drain" | "data", until: number) =>
  new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(end)
      socket.off(event, done).off("close", done)
      resolve()
    }
    const end = setTimeout(done, Math.max(0, until - performance.now()))
    socket.once(event, done).once("close", done)
  })

const writeAll = async (socket: Socket, bytes: Buffer, until: number) => {
  if (!socket.destroyed && !socket.write(bytes)) await untilEvent(socket, "drain", until)
}

const whileOpen = async (socket: Socket, until: number, step: (n: number) => Promise<void>) => {
  for (let n = 0; performance.now() < until && !socket.destroyed; n += 1) await step(n)
}

const headEnd = "\r\n\r\n"

/**
 * Opens a connection that the service has accepted. Node accepts one in each turn of the event loop; until then, a connection
 * waits in the kernel, and one that its client has left there costs the service only that turn.
 */
const openAccepted = async (open: () => Socket, until: number) => {
  const socket = open()
  await writeAll(socket, Buffer.from(`GET /health/ready HTTP/1.1\r\nHost: byok${headEnd}`), until)
  await untilEvent(socket.resume(), "data", until)
  return socket
}

const manners: Record<string, Manner> = {
  "does not read": {
    seconds: 3,
    begin: async (_client, open, bytes, until) => {
      const socket = open()
      for (let n = 0; n < 4; n += 1) await writeAll(socket, bytes(n), until)
      await untilOver(until)
    }
  },
  "sends half": {
    seconds: 3,
    begin: async (_client, open, bytes, until) => {
      const socket = open()
      const whole = bytes(0)
      await writeAll(socket, whole.subarray(0, whole.length - 20), until)
      await untilOver(until)
    }
  },
  "sends a byte a chunk": {
    seconds: 4,
    begin: async (_client, open, bytes, until) => {
      const socket = open()
      const [head = ""] = bytes(0).toString("latin1").split(headEnd, 1)
      const framed = head.replace(/\r\ncontent-length: \d+/i, "") + "\r\nTransfer-Encoding: chunked" + headEnd
      await writeAll(socket, Buffer.from(framed), until)
      for (let n = 0; n < 60; n += 1) await writeAll(socket, Buffer.from("1\r\n \r\n".repeat(1_000)), until)
      await untilOver(until)
    }
  },
  "pipelines to the limit": {
    seconds: 3,
    begin: async (client, open, bytes, until) => {
      const socket = open()
      const [head = ""] = bytes(0).toString("latin1").split(headEnd, 1)
      // Every other client asks without a token, as shortly as it can.
      const odd = client % 2 === 1 ? "|authorization" : ""
      const left = new RegExp(`\\r\\n(content-length|content-type|x-request-id|x-pad${odd}): [^\\r]*`, "gi")
      const request = head.replace(left, "") + headEnd
      const block = Buffer.from(request.repeat(Math.ceil(65_536 / request.length)))
      await whileOpen(socket, until, () => writeAll(socket, block, until))
    }
  },
  "sends the longest texts, always others": {
    seconds: 2,
    begin: async (_client, open, bytes, until) => {
      const socket = open()
      await whileOpen(socket, until, async (n) => {
        await writeAll(socket, bytes(n), until)
        await untilEvent(socket.resume(), "data", until)
      })
    }
  },
  "leaves before it is accepted": {
    seconds: 3,
    delaysOthers: true,
    begin: async (_client, open, bytes, until) => {
      for (let n = 0; performance.now() < until; n += 1) {
        const socket = open()
        await writeAll(socket, bytes(n), until)
        await delay(n % 20)
        socket.destroy()
      }
    }
  },
  "leaves at once": {
    seconds: 3,
    begin: async (_client, open, bytes, until) => {
      for (let n = 0; performance.now() < until; n += 1) {
        const socket = await openAccepted(open, until)
        await writeAll(socket, bytes(n), until)
        await delay(n % 20)
        socket.destroy()
      }
    }
  }
}

/** Asks endpoints of a way from all connections in a manner. */
const disturb = async (bed: Bed, way: Way, endpoints: ReadonlyArray<string>, manner: Manner) => {
  const { begin, connections = usualConnections, seconds } = manner
  const until = performance.now() + seconds * 1000
  const open: Array<Socket> = []
  const one = () => {
    const socket = connect(addressOf(bed, way))
      .pause()
      .on("error", () => {})
    socket.on("data", () => {})
    open.push(socket)
    return socket.pause()
  }
  await Promise.all(
    Array.from({ length: connections }, (_, client) => {
      const endpoint = endpoints[client % endpoints.length] ?? ""
      const bytes = requestsTo(bed, way, endpoint)
      return begin(client, one, (n) => bytes(n * connections + client), until)
    })
  )
  for (const socket of open) socket.destroy()
}

/** An idle server in a separate process: its latency shows how busy the machine is. */
const idleServer = `require("node:http")
  .createServer((_request, response) => response.end())
  .listen(0, "127.0.0.1", function () { process.stdout.write(String(this.address().port)) })`

/**
 * Asks for a credential, and the server that does nothing, again and again in a thread of its own, until it is told to stop;
 * then it tells the worst times.
 */
const calmClient = `
  import { parentPort, workerData } from "node:worker_threads"
  let isOver = false
  parentPort.once("message", () => (isOver = true))
  const refused = []
  const ask = async (url, worst) => {
    const began = performance.now()
    const { status } = await fetch(url, {
      headers: { authorization: "Bearer " + workerData.key, connection: "close" },
      signal: AbortSignal.timeout(10_000)
    }).catch(({ message }) => ({ status: message }))
    if (status !== 200) refused.push(status)
    return Math.max(worst, performance.now() - began)
  }
  let [worst, idle] = [0, 0]
  while (!isOver) {
    worst = await ask(workerData.url, worst)
    idle = await ask(workerData.idle, idle)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  parentPort.postMessage({ worst, idle, refused })`

interface Calm {
  readonly worst: number
  /** The worst latency of the idle server. */
  readonly idle: number
  readonly refused: ReadonlyArray<unknown>
}

const beside = async <A>(work: () => Promise<A>, asked: Readonly<Record<"url" | "key", string>>) => {
  const code = new URL(`data:text/javascript,${encodeURIComponent(calmClient)}`)
  const server = spawn(process.execPath, ["-e", idleServer])
  const [port] = (await once(server.stdout, "data")) as [Buffer]
  const worker = new Worker(code, { workerData: { ...asked, idle: `http://127.0.0.1:${port.toString()}` } })
  await once(worker, "online")
  const seen = once(worker, "message") as Promise<[Calm]>
  const done = await work()
  worker.postMessage("over")
  const [calm] = await seen
  await worker.terminate()
  server.kill()
  return [calm, done] as const
}

const start = (settings: Record<string, string>, program = byokScript) =>
  Effect.gen(function* () {
    const socketPath = join(yield* temporaryDirectory, "gateway.sock")
    const given = {
      BYOK_GATEWAY_SOCKET: socketPath,
      BYOK_MANAGEMENT_PORT: "0",
      LOG_LEVEL: "info"
    }
    const service = yield* startService({ ...settings, ...given }, [
      "--expose-gc",
      `--import=${probe}`,
      program,
      "serve"
    ])
    return { ...service, socketPath }
  })

/** A database with a quiet account that has one credential, and a noisy one whose list is some megabytes long. */
class Accounts extends Context.Service<
  Accounts,
  Pick<Bed, "ids" | "keys"> & { readonly quiet: Record<"key" | "id", string> }
>()("byok/test/Accounts") {
  static readonly layer = Layer.effect(
    this,
    Effect.scoped(
      Effect.gen(function* () {
        const { key, settings } = yield* OnDatabase
        const { socketPath, url } = yield* start(settings)
        const create = (token: string, provider = creation.provider) => {
          const headers = [bearer(token), json]
          const body = JSON.stringify({ ...creation, provider })
          const request = { method: "POST", path: "/api/v1/byok", headers, body }
          return Effect.map(send(url, request), createdId)
        }
        const account = yield* createAccount(settings)
        const [account_id, workspace_id, noisy] = [
          textIn(account, "account_id"),
          textIn(account, "workspace_id"),
          textIn(account, "management_key")
        ]
        const made = yield* ask(socketPath, "POST", `/v1/accounts/${account_id}/links`, { purpose: "manage" })
        const link = /#([^"]+)"/.exec(made.text)?.[1] ?? ""
        const quiet = { key, id: yield* create(key) }
        // Of several providers, because MAX_POOL_BYTES allows 17 of one.
        for (let n = 1; n < 40; n += 1) yield* create(noisy, ["openai", "anthropic", "mistral", "groq"][n % 4])
        return { keys: { noisy, link }, ids: { account_id, workspace_id, id: yield* create(noisy) }, quiet }
      })
    )
  ).pipe(Layer.provideMerge(OnDatabase.layer))
}

/** Starts the service, lets clients ask in a manner, and measures its memory during and after the load. */
const measure = (way: Way, endpoints: ReadonlyArray<string>, manner: Manner, program?: string) =>
  Effect.gen(function* () {
    const { settings } = yield* OnDatabase
    const { quiet, ...made } = yield* Accounts
    const { pid, signal, socketPath, stderr, url } = yield* start(settings, program)
    const bed: Bed = { url, socketPath, ...made }
    const calmly = { url: `${url}/api/v1/byok/${quiet.id}`, key: quiet.key }
    for (let n = 0; n < 50; n += 1) {
      const request = { path: `/api/v1/byok/${quiet.id}`, headers: [bearer(quiet.key)] }
      assert.strictEqual((yield* send(url, request)).status, 200)
    }

    const collected = Effect.gen(function* () {
      const before = stderr().length
      yield* signal("SIGUSR2")
      yield* eventually("garbage is collected", () => /collected \d+\n/.test(stderr().slice(before)))
      return Number(/collected (\d+)\n/.exec(stderr().slice(before))?.[1]) / mebibyte
    })
    const cached = Effect.gen(function* () {
      const { body } = yield* send(yield* managementUrl({ stderr }), { path: "/metrics" })
      return (sumIn(samplesIn(body), "byok_memory_held_bytes", { use: "cache" }) ?? Number.NaN) / mebibyte
    })
    const before = (yield* collected) - (yield* cached)
    resetPeakMemory(pid)
    const memory = peakMemory(pid)

    const disturbing = () => disturb(bed, way, endpoints, manner)
    const disturbed = Effect.promise(() => beside(disturbing, calmly))
    // Only for the control: a collection while the clients are there makes the peak lower.
    const halfway = program === undefined ? Effect.succeed(Number.NaN) : Effect.delay(collected, manner.seconds * 500)
    const [[calm], held] = yield* Effect.all([disturbed, halfway], { concurrency: 2 })
    assert.isTrue(isRunning(pid), stderr().slice(-1000))
    const growth = peakMemory(pid) - memory
    let left = Infinity
    for (const giveUp = performance.now() + 15_000; left > mostLeft && performance.now() < giveUp;) {
      yield* Effect.sleep("300 millis")
      left = (yield* collected) - (yield* cached) - before
    }
    return { growth, left, held: held - before, ...calm }
  })

/** Each manner with all endpoints of a way, and the longest texts with each body of its own. */
const cases = (Object.keys(bodies) as ReadonlyArray<Way>).flatMap((way) => {
  const all = Object.keys(bodies[way])
  return Object.entries(manners).flatMap(([name, manner]) => {
    const own = name.startsWith("sends the longest")
      ? all.filter((endpoint) => bodies[way][endpoint] !== undefined)
      : []
    const together = all.filter((endpoint) => !own.includes(endpoint))
    return [[together, "all others"] as const, ...own.map((endpoint) => [[endpoint], endpoint] as const)].map(
      ([endpoints, label]) => ({ way, name, label: own.length === 0 ? "all" : label, endpoints, manner })
    )
  })
})

const figures = ({ growth, idle, left, refused, worst }: Calm & Readonly<Record<"growth" | "left", number>>) =>
  `grew by ${growth.toFixed(0)} MiB, kept ${left.toFixed(0)} MiB, answered another account within ${worst.toFixed(0)} ms (a server that does nothing ${idle.toFixed(0)})` +
  (refused.length === 0 ? "" : `, refused it: ${refused.join(", ")}`)

layerLive(Accounts.layer, { timeout: "120 seconds" })("a client with 60 connections (T9)", (it) => {
  it.effect.each(cases.map((one) => [one.way, one.name, one.label, one] as const))(
    "on the %s that %s, requesting %s, takes bounded memory of the process and gives it back",
    function* ([, , , { endpoints, manner, way }]) {
      const seen = yield* measure(way, endpoints, manner)
      assert.isAtMost(seen.growth, mostGrowth, figures(seen))
      assert.isAtMost(seen.left, mostLeft, figures(seen))
      if (manner.delaysOthers) return
      assert.isAtMost(seen.worst, 2_000 + seen.idle, figures(seen))
      assert.deepStrictEqual(seen.refused, [], figures(seen))
    }
  )

  it.effect("that sends half of each body makes a build without a threshold hold much more (control)", function* () {
    const folder = yield* temporaryDirectory
    cpSync(dirname(byokScript), folder, { recursive: true })
    const file = join(folder, "main.js")
    const source = readFileSync(file, "utf8")
    const planted = source.replace("(accounts.get(account) ?? 0) + bytes > shares[use] * (total - used)", "false")
    assert.notStrictEqual(planted, source)
    writeFileSync(file, planted)
    // As many connections as an account may have: all bodies are 115 MB.
    const manner = { ...(manners["sends half"] as Manner), connections: 500, seconds: 10 }
    const usual = yield* measure("port", ["POST /api/v1/byok"], manner, byokScript)
    const unbounded = yield* measure("port", ["POST /api/v1/byok"], manner, join(folder, "bin.js"))
    assert.isAbove(unbounded.held, usual.held + 80, `${figures(usual)}; control ${figures(unbounded)}`)
  })
})
