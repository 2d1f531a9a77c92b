import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { parseArgs } from "node:util"
import { Effect } from "effect"
import { makeBed, onPostgres, sweep } from "../Bed.ts"
import { type Cell, type Contender, inTurns } from "../Cell.ts"
import { fillService } from "../gateway/Gateway.ts"
import { routeOver } from "../gateway/Routes.ts"
import { body, generator, loadOn, put, type Request, send, type Traffic } from "../Load.ts"
import { pictureOf } from "../Picture.ts"
import { tableOf } from "../Report.ts"
import { builtIn, startServer, startTarget, type Target } from "../Target.ts"
import { startBarbican } from "./Barbican.ts"
import { startPortkey } from "./Portkey.ts"

const { values } = parseArgs({
  options: {
    connections: { type: "string", default: "1,16,64" },
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "2" },
    /** Which rivals, by default all. */
    only: { type: "string", default: "portkey,barbican" },
    picture: { type: "string", default: "test/bench/results/rivals.svg" }
  }
})
const connections = values.connections.split(",").map(Number)
const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)]

const key = "sk-rivals-0123456789-0123456789-0123456789-0123456789"

type Compare = (operation: Cell["operation"], at: (connections: number) => ReadonlyArray<Contender>) => Promise<void>

/** The service, also on a Unix socket for customers with three keys each. */
interface Byok extends Target {
  readonly socket: string
  readonly accounts: ReadonlyArray<string>
}

/** Measures whole chat requests: directly to a fake provider, through Portkey, and through a gateway that uses byok. */
const besidePortkey = async (portkey: Portkey, { accounts, bed, pid, socket }: Byok, compare: Compare) => {
  const start = (name: string, ...given: ReadonlyArray<string>) =>
    startServer(name, (port) => [process.execPath, `test/bench/rivals/${name}.ts`, String(port), ...given], {
      stdio: ["ignore", "ignore", "inherit"]
    })
  const upstream = await start("upstream")
  const gateway = await start("gateway", socket, upstream.url)
  const messages = [{ role: "user", content: "A question of about a thousand bytes. ".repeat(24) }]
  const requests: ReadonlyArray<Request> = [
    { method: "POST", path: "/v1/chat/completions", body: JSON.stringify({ model: "openai/gpt-4o", messages }) }
  ]
  const headers = { "x-portkey-provider": "openai", "x-portkey-custom-host": `${upstream.url}/v1` }
  await compare("chat", (connections) => {
    const through = (
      name: string,
      pids: ReadonlyArray<number>,
      traffic: Pick<Traffic, "headers" | "keys" | "url">
    ) => ({
      ...{ name, pids, postgres: bed },
      load: (seconds: number) => send({ ...traffic, connections, requests, seconds })
    })
    return [
      through("byok", [gateway.pid, pid], { url: gateway.url, keys: accounts }),
      through("portkey", [portkey.pid], { url: portkey.url, keys: [key], headers }),
      through("upstream", [upstream.pid], { url: upstream.url, keys: [key] })
    ]
  })
  for (const { stop } of [gateway, portkey, upstream]) await stop()
}

/** Stores secrets in Barbican one after the other, as its first requests fail if a process gets several at once. */
const fillBarbican = async (
  url: string,
  { path, ...request }: Request,
  project: Readonly<Record<string, string>>,
  count: number
): Promise<ReadonlyArray<string>> => {
  const ids: Array<string> = []
  while (ids.length < count) {
    const headers = { ...project, "content-type": "application/json" }
    const answer = await fetch(url + path, { ...request, headers })
    if (answer.status !== 201) throw new Error(`Barbican answered ${answer.status}: ${await answer.text()}`)
    const { secret_ref } = (await answer.json()) as { readonly secret_ref: string }
    ids.push(secret_ref.slice(secret_ref.lastIndexOf("/") + 1))
  }
  return ids
}

/** Measures storing a key, reading its metadata, and getting the key itself. */
const besideBarbican = async ({ database, server }: Barbican, byok: Byok, compare: Compare) => {
  const project = { "X-Project-Id": "0123456789abcdef0123456789abcdef" }
  const { key: payload, name } = JSON.parse(body) as { readonly key: string; readonly name: string }
  const secret = { name, payload, payload_content_type: "text/plain", secret_type: "opaque" }
  const store: Request = { method: "POST", path: "/v1/secrets", body: JSON.stringify(secret) }
  const ids = await fillBarbican(server.url, store, project, 100)
  const barbican = (connections: number, requests: ReadonlyArray<Request>, headers = {}): Contender => ({
    ...{ name: "barbican", pids: [server.pid], postgres: { postmaster: database.pid } },
    load: (seconds) =>
      send({ url: server.url, keys: ["none"], headers: { ...project, ...headers }, connections, requests, seconds })
  })
  const { accounts, bed, pid, socket, url } = byok
  const own = { name: "byok", pids: [pid], postgres: bed }
  const loaded = (operation: "create" | "get", connections: number): Contender => ({
    ...own,
    load: (seconds) => put(loadOn(bed, url, { operation, connections, seconds }))
  })
  const secrets = (suffix = "") => ids.map((id) => ({ method: "GET", path: `${store.path}/${id}${suffix}` }))
  await compare("lease", (at) => [
    { ...own, load: (seconds) => routeOver(socket, accounts, { connections: at, rides: true, seconds }) },
    barbican(at, secrets("/payload"), { Accept: "text/plain" })
  ])
  await compare("get", (at) => [loaded("get", at), barbican(at, secrets(), { Accept: "application/json" })])
  // Last, because this also deletes the customers' keys.
  await compare("create", (at) => [{ ...loaded("create", at), after: () => sweep(bed) }, barbican(at, [store])])
  for (const { stop } of [server, database]) await stop()
}

type Portkey = Awaited<ReturnType<typeof startPortkey>>
type Barbican = Awaited<ReturnType<typeof startBarbican>>

/** Starts a rival; if that fails, says that it is skipped, and why. */
const started = async <A extends { readonly versions: string }>(name: string, start: () => Promise<A>) => {
  if (!values.only.split(",").includes(name)) return undefined
  try {
    const rival = await start()
    console.log(`${name}: ${rival.versions}\n`)
    return rival
  } catch (error) {
    console.log(`${name} is skipped: ${error instanceof Error ? error.message : String(error)}\n`)
    return undefined
  }
}

onPostgres(async (postgres) => {
  const cells: Array<Cell> = []
  const compare: Compare = async (operation, at) => {
    // Lets every contender compile its hot paths.
    await inTurns(at(64), 1, 2)
    for (const count of connections)
      cells.push({ operation, connections: count, rounds: await inTurns(at(count), rounds, seconds) })
  }
  const bed = await makeBed(postgres, "rivals", 1_000, false)
  const directory = mkdtempSync(join(tmpdir(), "byok-rivals-"))
  try {
    const socket = join(directory, "gateway.sock")
    const service = builtIn(".")
    const accounts = await Effect.runPromise(Effect.orDie(fillService(bed.url, 100, 3)))
    const environment = { ...service.environment, BYOK_GATEWAY_SOCKET: socket }
    const byok: Byok = { ...(await startTarget({ ...service, environment }, bed)), accounts, socket }
    const portkey = await started("portkey", startPortkey)
    if (portkey !== undefined) await besidePortkey(portkey, byok, compare)
    const barbican = await started("barbican", startBarbican)
    if (barbican !== undefined) await besideBarbican(barbican, byok, compare)
    await byok.stop()
  } finally {
    await bed.client.end()
    rmSync(directory, { recursive: true })
  }
  console.log(`${rounds} rounds of ${seconds} s, Node.js ${process.version}, load by ${generator}\n`)
  console.log(tableOf(cells, "byok"))
  mkdirSync(dirname(values.picture), { recursive: true })
  const title = "byok beside Portkey's gateway and Barbican: medians on two shared cores"
  const series = {
    byok: { name: "byok", tone: "service" },
    portkey: { name: "Portkey", tone: "peer" },
    barbican: { name: "Barbican", tone: "leanPeer" },
    upstream: { name: "the fake provider alone", tone: "control" }
  } as const
  writeFileSync(values.picture, pictureOf(cells, { title, series }))
})
