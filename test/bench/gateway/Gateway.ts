import { createCipheriv, createSecretKey, randomBytes, randomUUID } from "node:crypto"
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Option, Redacted } from "effect"
import * as Byok from "../../../src/wiring/Byok.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { decodeNewCredential } from "../../../src/domain/NewCredential.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { Accounts } from "../../../src/service/accounts/Accounts.ts"
import { readSettings } from "../../../src/wiring/Settings.ts"
import { type Bed, makeBed, type Postgres } from "../Bed.ts"
import { type Cell, type Contender, inTurns } from "../Cell.ts"
import { isListening, keyring, maxCredentials, type Program, type Running, service, startProcess } from "../Target.ts"
import { routeOver } from "./Routes.ts"

/** A service for gateways, and the ways to report to it by name: with the next request, or separately. */
export interface Gateway {
  readonly program: Program
  readonly ways: Readonly<Record<string, { readonly rides: boolean }>>
}

const lean = { name: "lean", arguments: ["test/bench/gateway/lean.ts"] }

/** The lean peer on its own socket. */
export const leanGateway: Gateway = { program: lean, ways: { lean: { rides: false }, "lean riding": { rides: true } } }
/** The service, to which gateways also send reports with the next request. */
export const ownGateway = (program: Program): Gateway => ({
  program,
  ways: { [program.name]: { rides: true }, [`${program.name} alone`]: { rides: false } }
})

const rungOf = (name: string, ...layers: ReadonlyArray<string>): Gateway => ({
  program: { name, arguments: ["test/bench/gateway/rung.ts", ...layers], environment: service.environment ?? {} },
  ways: { [name]: { rides: true } }
})

/** The layers of a routed request: each rung of the first part adds one, each of the second lacks one of the whole. */
export const rungs: ReadonlyArray<Gateway> = [
  rungOf("node:http, a constant answer", "node"),
  rungOf("Effect's server and router", "router"),
  rungOf("+ HTTP of gateways", "service"),
  rungOf("+ MAC of attempts", "service", "mac"),
  rungOf("+ planner", "service", "mac", "planner"),
  rungOf("+ opening of keys", "service", "mac", "planner", "cipher"),
  rungOf("+ database: the whole", "service", "mac", "planner", "cipher", "database"),
  rungOf("the whole less MAC", "service", "planner", "cipher", "database"),
  rungOf("the whole less opening", "service", "mac", "planner", "database")
]

/** Requests that each process answers before it is measured: V8 compiles the hot paths until then. */
const warmUpRequests = 50_000
const customers = 100
const keysEach = 3
/** Customers with large pools, as many as fit into the memory budget. */
const customersOfPools = 10

const keyOf = (n: number) => `sk-${n}-0123456789-0123456789-0123456789-0123456789`

/** Creates customers with so many keys each for the service. */
export const fillService = (url: string, customers: number, keysEach: number) => {
  const settings = Effect.runSync(readSettings)
  return Effect.gen(function* () {
    const { create } = yield* Credentials
    const accounts = yield* Accounts
    const customer = Effect.gen(function* () {
      const { account_id } = yield* accounts.createAccount("bench")
      for (let n = 0; n < keysEach; n++) {
        const body = yield* decodeNewCredential({ provider: "azure", key: keyOf(n) })
        yield* Effect.provideService(create(body), CurrentPrincipal, { kind: "in_process", account_id })
      }
      return account_id
    })
    return yield* Effect.replicateEffect(customer, customers)
  }).pipe(
    Effect.provide(
      Byok.layerWith({
        ...settings,
        poolLimits: { ...settings.poolLimits, credentials: maxCredentials },
        databaseUrl: Option.some(Redacted.make(url)),
        keyring: Option.some(Redacted.make(keyring))
      })
    )
  )
}

/** Gives the peer the same customers and keys, sealed in its own way. */
const fillPeer = async ({ client }: Bed, accounts: ReadonlyArray<string>, secret: Buffer) => {
  await client.query(
    `CREATE TABLE lean_keys (id uuid PRIMARY KEY, account_id uuid NOT NULL, provider text NOT NULL, label text NOT NULL,
      disabled boolean NOT NULL DEFAULT false, sort_order int NOT NULL, sealed bytea NOT NULL);
     CREATE INDEX ON lean_keys (account_id, provider, sort_order)`
  )
  for (const account_id of accounts) {
    for (let n = 0; n < keysEach; n++) {
      const id = randomUUID()
      const nonce = randomBytes(12)
      const cipher = createCipheriv("aes-256-gcm", createSecretKey(secret), nonce).setAAD(Buffer.from(id))
      const sealed = Buffer.concat([nonce, cipher.update(keyOf(n)), cipher.final(), cipher.getAuthTag()])
      const values = [id, account_id, "azure", "sk-...6789", n, sealed]
      await client.query("INSERT INTO lean_keys VALUES ($1, $2, $3, $4, false, $5, $6)", values)
    }
  }
  await client.query("VACUUM ANALYZE")
}

const start = (
  { arguments: given, environment, name }: Program,
  path: string,
  variables: object,
  output: number | "ignore"
) => {
  const env = { ...process.env, ...environment, ...variables, PORT: "0", NODE_ENV: "production" }
  const command = [process.execPath, ...given]
  return startProcess(name, command, { env, stdio: ["ignore", output, "inherit"] }, () => isListening({ path }))
}

interface RunningGateway extends Gateway, Running {
  readonly path: string
}

/** Starts gateways on sockets of their own, and stops them when they were used. */
const withGateways = async <A>(
  url: string,
  gateways: ReadonlyArray<Gateway>,
  secret: Buffer,
  use: (running: ReadonlyArray<RunningGateway>) => Promise<A>,
  output: number | "ignore" = "ignore"
): Promise<A> => {
  const directory = mkdtempSync(join(tmpdir(), "byok-gateways-"))
  const running: Array<RunningGateway> = []
  for (const gateway of gateways) {
    const path = join(directory, `${running.length}.sock`)
    const sockets = { BYOK_GATEWAY_SOCKET: path, GATEWAY_SOCKET: path }
    const variables = { DATABASE_URL: url, ...sockets, LEAN_KEY: secret.toString("base64") }
    running.push({ ...gateway, path, ...(await start(gateway.program, path, variables, output)) })
  }
  const used = await use(running)
  for (const { stop } of running) await stop()
  rmSync(directory, { recursive: true })
  return used
}

/** Measures routed requests of gateways on Unix sockets, the service's beside the peer's. */
export const measureGateways = async (
  postgres: Postgres,
  gateways: ReadonlyArray<Gateway>,
  given: {
    readonly connections: ReadonlyArray<number>
    readonly rounds: number
    readonly seconds: number
  }
): Promise<ReadonlyArray<Cell>> => {
  const bed = await makeBed(postgres, "gateway", 1, false)
  const accounts = await Effect.runPromise(Effect.orDie(fillService(bed.url, customers, keysEach)))
  const secret = randomBytes(32)
  await fillPeer(bed, accounts, secret)
  const cells = await withGateways(bed.url, gateways, secret, async (running) => {
    const contendersAt = (connections: number) =>
      running.flatMap(({ path, pid, ways }) =>
        Object.entries(ways).map(([name, { rides }]): Contender => ({
          ...{ name, postgres, pids: [pid] },
          load: (seconds) => routeOver(path, accounts, { connections, rides, seconds })
        }))
      )
    for (const { path } of running) {
      const load = { connections: 64, rides: true, seconds: 2 }
      for (let sent = 0; sent < warmUpRequests; sent += (await routeOver(path, accounts, load)).requests);
    }
    const cells: Array<Cell> = []
    for (const connections of given.connections) {
      const rounds = await inTurns(contendersAt(connections), given.rounds, given.seconds)
      cells.push({ operation: "route", connections, rounds })
    }
    return cells
  })
  await bed.client.end()
  return cells
}

/** Measures routed requests of customers with so many keys each, whose databases may be different ones. */
export const measureRoutes = async (
  postgres: Postgres,
  program: Program,
  pools: ReadonlyArray<{ readonly name: string; readonly bed: Bed; readonly keysEach: number }>,
  { rounds, seconds }: { readonly rounds: number; readonly seconds: number }
): Promise<Cell> => {
  const connections = 64
  const contenders: Array<Contender> = []
  const measured = async (rest: typeof pools): Promise<Cell> => {
    const [next, ...others] = rest
    if (next === undefined)
      return { operation: "route", connections, rounds: await inTurns(contenders, rounds, seconds) }
    const { bed, keysEach, name } = next
    const accounts = await Effect.runPromise(Effect.orDie(fillService(bed.url, customersOfPools, keysEach)))
    return withGateways(bed.url, [ownGateway(program)], randomBytes(32), ([running]) => {
      const { path, pid } = running as RunningGateway
      const load = (seconds: number) => routeOver(path, accounts, { connections, rides: true, seconds })
      contenders.push({ name, postgres, pids: [pid], load })
      return measured(others)
    })
  }
  return measured(pools)
}

/** The bytes that a service allocates for a routed request: what V8 counts from one garbage collection to the next. */
export const allocationOf = async (postgres: Postgres, program: Program, seconds: number): Promise<number> => {
  const bed = await makeBed(postgres, "allocation", 1, false)
  const accounts = await Effect.runPromise(Effect.orDie(fillService(bed.url, customers, keysEach)))
  const directory = mkdtempSync(join(tmpdir(), "byok-allocation-"))
  const file = join(directory, "collections")
  const traced = { ...program, arguments: ["--trace-gc", "--trace-gc-nvp", ...program.arguments] }
  const allocated = () => {
    const counts = [...readFileSync(file, "latin1").matchAll(/ allocated=(\d+)/g)]
    return counts.reduce((sum, [, bytes]) => sum + Number(bytes), 0)
  }
  const measure = async ([running]: ReadonlyArray<RunningGateway>) => {
    const { path } = running as RunningGateway
    const load = { connections: 64, rides: true, seconds }
    await routeOver(path, accounts, load)
    const before = allocated()
    const { requests } = await routeOver(path, accounts, load)
    return (allocated() - before) / requests
  }
  const bytes = await withGateways(bed.url, [ownGateway(traced)], randomBytes(32), measure, openSync(file, "a"))
  rmSync(directory, { recursive: true })
  await bed.client.end()
  return bytes
}
