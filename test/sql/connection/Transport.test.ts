import { Cause, Context, Effect, Exit, Layer, Redacted, type Scope } from "effect"
import { chownSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { networkInterfaces } from "node:os"
import { join } from "node:path"
import * as DatabaseLive from "../../../src/sql/connection/Database.ts"
import { Database } from "../../../src/sql/connection/Database.ts"
import { makeTransport } from "../../../src/sql/connection/Transport.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { type DatabaseTarget, parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { prepare } from "../../../src/sql/embedded/DataDirectory.ts"
import { locate, postgresUser } from "../../../src/sql/embedded/PostgresBinaries.ts"
import { migrate } from "../../support/database/migrate.ts"
import { run } from "../../support/process/ChildProcess.ts"
import { assert, describe, it, layerLive } from "../../support/it.ts"
import { eventually } from "../../support/process/eventually.ts"
import { databaseSettings } from "../../support/database/freshDatabase.ts"
import { listen } from "../../support/database/listen.ts"
import { refusingPostgres } from "../../support/database/RefusingPostgres.ts"
import { selfSignedCertificate } from "../../support/keys/selfSignedCertificate.ts"
import { temporaryDirectory } from "../../support/process/temporaryDirectory.ts"

const accepts = (port: number) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(port, "localhost")
    const settle = (answer: boolean) => {
      socket.destroy()
      resume(Effect.succeed(answer))
    }
    socket.once("connect", () => settle(true)).once("error", () => settle(false))
  })

/** A PostgreSQL that speaks TLS under a certificate for `localhost`. */
class TlsPostgres extends Context.Service<TlsPostgres, { readonly port: number; readonly certificate: string }>()(
  "byok/test/TlsPostgres"
) {
  static readonly layer = Layer.effect(
    this,
    Effect.gen(function* () {
      const binaries = yield* locate()
      const { cluster } = yield* prepare(yield* temporaryDirectory, binaries)
      const { certificate, key } = selfSignedCertificate("localhost")
      const access = "host all all localhost trust\n"
      for (const [name, text] of Object.entries({
        "server.crt": certificate,
        "server.key": key,
        "pg_hba.conf": access
      })) {
        writeFileSync(join(cluster, name), text, { mode: 0o600 })
        if (postgresUser !== undefined) chownSync(join(cluster, name), postgresUser.uid, postgresUser.gid)
      }
      const port = yield* Effect.scoped(listen(() => undefined, "localhost"))
      const settings = ["listen_addresses=localhost", `port=${port}`, "unix_socket_directories=", "ssl=on"]
      yield* run(binaries.postgres, ["-D", cluster, ...settings.flatMap((setting) => ["-c", setting])])
      yield* eventually("PostgreSQL accepts connections", accepts(port))
      return { port, certificate }
    })
  )
}

const targetOf = (port: number, ca?: string) =>
  parseDatabaseUrl(Redacted.make(`postgres://byok:fake-password@localhost:${port}/postgres?sslmode=verify-full`), ca)

const readsOn = (target: DatabaseTarget) =>
  Effect.map(
    Layer.build(DatabaseLive.layer(target, databaseSettings)),
    (context) => Context.get(context, Database).reads
  )

const reads = (port: number, ca?: string) => readsOn(targetOf(port, ca))

const ask = Effect.fnUntraced(function* (port: number, ca?: string) {
  const pool = yield* reads(port, ca)
  return yield* pool.ask(pool.sql`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`, "tests.ask")
})

const assertRefuses = (exit: Exit.Exit<unknown, unknown>) => {
  assert(Exit.isFailure(exit))
  const failure = Cause.squash(exit.cause)
  assert.instanceOf(failure, DatabaseFailure)
  assert.strictEqual(failure.kind, "ConnectionError")
}

layerLive(TlsPostgres.layer)("a connection to a database with TLS", (it) => {
  it.effect("uses TLS if the database's certificate is trusted", function* () {
    const { certificate, port } = yield* TlsPostgres
    yield* eventually("it is ready", Effect.map(Effect.exit(ask(port, certificate)), Exit.isSuccess))
    assert.deepStrictEqual({ ...(yield* ask(port, certificate))[0] }, { ssl: true })
  })

  it.effect("carries megabytes in both directions unchanged", function* () {
    const { certificate, port } = yield* TlsPostgres
    const pool = yield* reads(port, certificate)
    const given = "0123456789abcdef".repeat(300_000)
    const [row] = yield* pool.ask(pool.sql<{ back: string }>`SELECT ${given}::text AS back`, "tests.ask")
    assert.isTrue(row?.back === given)
  })

  it.effect("fails if no given or known authority has signed the database's certificate", function* () {
    const { port } = yield* TlsPostgres
    assertRefuses(yield* Effect.exit(ask(port, selfSignedCertificate("localhost").certificate)))
    assertRefuses(yield* Effect.exit(ask(port)))
  })
})

it.live.each<readonly [string, Buffer]>([
  ["declines TLS", Buffer.from("N")],
  ["answers with an error", Buffer.from("E")],
  ["agrees, but adds clear text to its answer", Buffer.from("SR\0\0\0\b\0\0\0\0")]
])("the client sends nothing but the request for TLS to a database that %s", function* ([, answer]) {
  const heard: Array<string> = []
  const port = yield* listen(
    (socket) =>
      socket.on("data", (bytes: Buffer) => {
        heard.push(bytes.toString("hex"))
        socket.write(answer)
      }),
    "localhost"
  )
  assertRefuses(yield* Effect.exit(ask(port)))
  assert.deepStrictEqual(new Set(heard), new Set(["0000000804d2162f"]))
})

it.live("a connection that the database closes unanswered fails at once, not at the connect timeout", function* () {
  const port = yield* listen((socket) => socket.once("data", () => socket.destroy()), "localhost")
  const began = performance.now()
  const error = yield* Effect.callback<Error>((resume) => {
    const socket = makeTransport(targetOf(port), { silence: 60_000, pooler: false }, () => {})()
    socket.once("error", (error: Error) => resume(Effect.succeed(error)))
  }).pipe(Effect.timeout("5 seconds"))
  assert.strictEqual(Reflect.get(error, "code"), "ECONNRESET")
  assert.isBelow(performance.now() - began, 500)
})

/** The two ways in which connections are made: by the transport of the pools, and by the driver. */
const ways: ReadonlyArray<(target: DatabaseTarget) => Effect.Effect<unknown, unknown, Scope.Scope>> = [
  (target) => Effect.flatMap(readsOn(target), ({ ask, sql }) => ask(sql`SELECT 1`, "tests.ask")),
  (target) => migrate(target, databaseSettings)
]

/** How both ways of connecting fail on a server that has this certificate and refuses every password, and how many passwords it got. */
const outcomes = Effect.fnUntraced(function* (host: string, certified: string) {
  const tls = selfSignedCertificate(certified)
  const { port, refused } = yield* refusingPostgres("28P01", "no", { address: host, tls })
  const url = `postgres://u:fake-password@${host.includes(":") ? `[${host}]` : host}:${port}/d?sslmode=verify-full`
  const target = parseDatabaseUrl(Redacted.make(url), tls.certificate)
  const codes = yield* Effect.forEach(ways, (connect) =>
    Effect.map(Effect.exit(connect(target)), (exit) => {
      assert(Exit.isFailure(exit))
      const failure = Cause.squash(exit.cause)
      assert.instanceOf(failure, DatabaseFailure)
      return failure.sqlstate
    })
  )
  return { codes, refused: refused() }
})

const hasIpv6 = Object.values(networkInterfaces()).some((found) => found?.some(({ address }) => address === "::1"))
const hosts = ["localhost", "127.0.0.1", ...(hasIpv6 ? ["::1"] : [])]

describe("a trusted certificate", () => {
  it.live.each(hosts)("for %s is accepted from that host, without a warning about IP addresses", function* (host) {
    const warnings: Array<string> = []
    const listen = (warning: Error) => void warnings.push(warning.message)
    yield* Effect.acquireRelease(
      Effect.sync(() => process.on("warning", listen)),
      () => Effect.sync(() => process.off("warning", listen))
    )
    assert.deepStrictEqual(yield* outcomes(host, host), { codes: ["28P01", "28P01"], refused: 2 })
    assert.deepStrictEqual(warnings, [])
  })

  const others = [...hosts, "127.0.0.2", "::2", "db.example.org"]
  it.live.each(
    hosts.flatMap((host) => others.filter((other) => other !== host).map((other) => [host, other] as const))
  )("is refused by a connection to %s before a password is sent if it is for %s", function* ([host, certified]) {
    const altname = "ERR_TLS_CERT_ALTNAME_INVALID"
    assert.deepStrictEqual(yield* outcomes(host, certified), { codes: [altname, altname], refused: 0 })
  })
})
