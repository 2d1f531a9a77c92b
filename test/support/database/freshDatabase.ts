import { randomBytes } from "node:crypto"
import { Duration, Effect, Option, Redacted } from "effect"
import { inject } from "vitest"
import { generateKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import type { Settings } from "../../../src/wiring/Settings.ts"
import { type DatabaseSettings, makeClient } from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { eventually } from "../process/eventually.ts"
import type { ServerSettings } from "../../../src/http/Server.ts"

export const databaseSettings: DatabaseSettings = {
  poolSize: 4,
  connectTimeout: Duration.seconds(5),
  statementTimeout: Duration.millis(2500),
  deadline: Duration.seconds(3),
  maxAge: Duration.minutes(10),
  queue: 2000,
  pooler: false
}

/** A client with all rights on a database, with which tests change rows without the service. */
export const adminClient = (url: string) =>
  makeClient(parseDatabaseUrl(Redacted.make(url)), databaseSettings, { maxConnections: databaseSettings.poolSize })

const databaseIn = /^(postgres(?:ql)?:\/\/[^/?]*)(?:\/([^?]*))?/

const newDatabase = Effect.fnUntraced(function* (original?: string) {
  const server = inject("serverUrl")
  const name = `byok_test_${randomBytes(6).toString("hex")}`
  /** On a connection of its own: one of minutes ago is closed, and a scope that closes opens none. */
  const run = (statement: string) =>
    Effect.scoped(Effect.flatMap(adminClient(server), (admin) => admin.unsafe(statement)))
  if (original !== undefined) {
    const sessions = run(`SELECT 1 FROM pg_stat_activity WHERE datname = '${original}'`)
    yield* eventually("nobody uses the database", Effect.orDie(sessions), ({ length }) => length === 0)
  }
  const template = original === undefined ? "" : ` TEMPLATE ${original}`
  yield* Effect.acquireRelease(run(`CREATE DATABASE ${name}${template}`), () =>
    Effect.orDie(run(`DROP DATABASE ${name} WITH (FORCE)`))
  )
  return server.replace(databaseIn, `$1/${name}`)
})

/** The URL of a new, empty database, dropped when the scope closes. */
export const freshDatabase = newDatabase()

/** The URL of a new database that is migrated, dropped when the scope closes. */
export const migratedDatabase = Effect.suspend(() => newDatabase(inject("migratedDatabase")))

/** A server on a port of its own, with the limits that it has by default. */
export const serverSettings: ServerSettings = {
  host: "127.0.0.1",
  port: 0,
  reusePort: false,
  maxConnections: 10_000,
  keepAliveTimeout: Duration.seconds(5),
  accessLog: false,
  sendTimeout: Duration.seconds(10)
}

/** Settings of a service on a database, with a keyring of one new key. */
export const settingsFor = (url: string, keyring = generateKeyring(new Date())): Settings => ({
  ...serverSettings,
  tls: Option.none(),
  publicUrl: Option.none(),
  webhook: Option.none(),
  drainDelay: Duration.zero,
  memoryBudget: 192 * 1024 * 1024,
  poolLimits: { credentials: 1_000_000, bytes: 1_073_741_824 },
  database: databaseSettings,
  databaseUrl: Option.some(Redacted.make(url)),
  databaseCaFile: Option.none(),
  migrate: "auto",
  dataDirectory: ".byok",
  keyring: Option.some(Redacted.make(keyring)),
  keyringFile: Option.none(),
  keyringCommand: Option.none(),
  otlp: {
    resource: { serviceName: "byok", serviceVersion: "0.0.0", attributes: { "service.instance.id": "a test" } },
    headers: Redacted.make({}),
    traces: Option.none(),
    metrics: Option.none(),
    sampling: { ratio: 1, parentDecides: true }
  },
  metricsInterval: Duration.minutes(1),
  management: Option.none(),
  tokensOnly: false,
  gatewaySocket: Option.none(),
  forwardSocket: Option.none()
})
