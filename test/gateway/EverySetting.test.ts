import { existsSync, writeFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { join } from "node:path"
import { ConfigProvider, Context, Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { serve } from "../../src/serve/serve.ts"
import * as Logging from "../../src/wiring/Logging.ts"
import { readSettings } from "../../src/wiring/Settings.ts"
import { startCollector } from "../leaks/Collector.ts"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { freePort } from "../support/database/listen.ts"
import { lockTable } from "../support/database/transactions.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { selfSignedCertificate } from "../support/keys/selfSignedCertificate.ts"
import { eventually } from "../support/process/eventually.ts"
import { takeLog } from "../support/process/Recording.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, layerLive } from "../support/it.ts"
import { type Answered, call, callEveryOperation } from "./everyOperation.ts"

type Variables = Readonly<Record<string, string>>

/** A running service with an account on it. */
interface Service {
  readonly variables: Variables
  readonly socket: { readonly socketPath: string }
  readonly port: { readonly url: string }
  readonly log: () => string
  /** The URL that `links.create` answered. */
  readonly link: string
  readonly account: string
  readonly sql: SqlClient.SqlClient
}

const create = ({ account, socket }: Service, body: object) =>
  call(socket, "POST", `/v1/accounts/${account}/credentials`, { key: "sk-0123456789-0123456789-AbCd", ...body })

const list = ({ account, socket }: Service) => call(socket, "GET", `/v1/accounts/${account}/credentials?limit=1`)

const link = ({ link }: Service) => Effect.succeed(new URL(link))

/** Creates credentials until one is refused. Returns how many were stored, at most `most`. */
const roomFor = (body: object, most: number) =>
  Effect.fnUntraced(function* (service: Service) {
    for (let n = 0; n < most; n += 1) if ((yield* create(service, body)).status !== 201) return n
    return most
  })

/** Lists credentials `count` times at once while their table is locked. Releases it after `millis`, or when asked to. */
const listsDuringLock = (
  count: number,
  millis: number,
  onAnswer: (release: Effect.Effect<void>) => Effect.Effect<void> = () => Effect.void
) =>
  Effect.fnUntraced(function* (service: Service) {
    const release = yield* Effect.orDie(lockTable(service.sql, "credentials"))
    yield* Effect.forkScoped(Effect.andThen(Effect.sleep(millis), release))
    const one = Effect.tap(list(service), () => onAnswer(release))
    const answers = yield* Effect.all(
      Array.from({ length: count }, () => one),
      { concurrency: "unbounded" }
    )
    return { served: answers.some(isOk), refused: !answers.every(isOk) }
  }, Effect.scoped)

const isOk = ({ status }: Answered) => status === 200

/** How many connections, opened one after another and kept open, are answered. */
const connectionsServed = ({ socket }: Service) =>
  Effect.promise(async () => {
    const clients: Array<Socket> = []
    let served = 0
    while (clients.length < 40) {
      const client = connect(socket.socketPath)
      clients.push(client)
      client.write("GET /health/ready HTTP/1.1\r\nHost: byok\r\n\r\n")
      served += await new Promise<number>((resolve) => {
        client
          .once("data", () => resolve(1))
          .once("close", () => resolve(0))
          .on("error", () => {})
      })
    }
    for (const client of clients) client.destroy()
    return served
  })

/** The header Keep-Alive of the socket and of the links API. */
const keepAlive = (service: Service) =>
  Effect.map(Effect.all([list(service), call(service.port, "GET", "/api/links/v1/link")]), (answers) =>
    answers.map(({ headers }) => headers["keep-alive"])
  )

/** Whether the log has a line such as this, once it has the line about the socket. */
const logs =
  (line: RegExp) =>
  ({ log }: Service) =>
    Effect.map(
      eventually("the log is written", () => log().includes("Gateways are served")),
      () => line.test(log())
    )

/** A list of about 100 kB. */
const longList = Array.from({ length: 100 }, (_, n) => `${"😀".repeat(250)}${n}`)

interface Change {
  /** The text of the setting; undefined if it excludes another setting of the table. */
  readonly to: string | undefined
  /** What shows the effect: at the changed service, and by default. Else why no answer shows it, or which test does. */
  readonly shown:
    | {
        readonly look: (service: Service) => Effect.Effect<unknown>
        readonly changed: unknown
        readonly byDefault: unknown
        /** The service with PUBLIC_URL unset, which would hide the setting. */
        readonly local?: true
      }
    | string
}

/** Every setting, changed from its default. */
const changesIn = (directory: string, ports: ReadonlyArray<number>, collector: string): Record<string, Change> => {
  const none = (to: string | undefined, why: string): Change => ({ to, shown: why })
  const change = (
    to: string,
    look: (service: Service) => Effect.Effect<unknown>,
    changed: unknown,
    byDefault: unknown
  ): Change => ({ to, shown: { look, changed, byDefault } })
  const atLink = (
    to: string,
    member: "hostname" | "port" | "protocol",
    changed: string,
    byDefault: string
  ): Change => ({
    to,
    shown: { look: (service) => Effect.map(link(service), (url) => url[member]), changed, byDefault, local: true }
  })
  const [port = 0, management = 0] = ports
  const tracing = "the test of traces below"
  const connection = "how the service talks to its database"
  const anotherKeyring = "the keys of another keyring: BYOK_KEYRING is set"
  return {
    DATABASE_URL: none(undefined, "the database of every service here"),
    BYOK_KEYRING: none(undefined, "the keyring of every service here"),
    BYOK_GATEWAY_SOCKET: none(undefined, "every answer of the socket"),
    BYOK_FORWARD_SOCKET: none(undefined, "another socket, with its own answers"),
    PUBLIC_URL: change(
      "https://keys.example/at/",
      (service) => Effect.map(link(service), ({ href }) => href.replace(/#.*/, "").replace(/:\d+/, "")),
      "https://keys.example/at/keys",
      "http://127.0.0.1/keys"
    ),
    HOST: atLink("127.0.0.2", "hostname", "127.0.0.2", "127.0.0.1"),
    PORT: atLink(String(port), "port", String(port), String(ports[2])),
    TLS_CERT_FILE: atLink(join(directory, "cert.pem"), "protocol", "https:", "http:"),
    TLS_KEY_FILE: none(join(directory, "key.pem"), "that of TLS_CERT_FILE, which goes with it"),
    TOKENS_ONLY: change(
      "true",
      ({ account, socket }) =>
        Effect.map(
          call(socket, "POST", "/v1/attempts", {
            ...{ account_id: account, model: "a/model", targets: [{ provider: "azure" }], keys: "as_stored" }
          }),
          ({ status }) => status
        ),
      400,
      200
    ),
    MAX_CREDENTIALS: change("8", roomFor({ provider: "cohere" }, 9), 8, 9),
    MAX_POOL_BYTES: change(
      "1048576",
      roomFor({ provider: "mistral", allowed_models: longList, allowed_user_ids: longList }, 6),
      5,
      6
    ),
    MAX_CONNECTIONS: change("20", connectionsServed, 20, 40),
    KEEP_ALIVE_TIMEOUT: change("7 seconds", keepAlive, ["timeout=7", "timeout=7"], ["timeout=5", "timeout=5"]),
    SEND_TIMEOUT: none("20 seconds", "test/http/SlowReader.slow.test.ts"),
    DATABASE_DEADLINE: change(
      "1 second",
      listsDuringLock(1, 1750),
      { served: false, refused: true },
      { served: true, refused: false }
    ),
    DATABASE_STATEMENT_TIMEOUT: none("900 millis", "that of DATABASE_DEADLINE, which must be longer"),
    DATABASE_QUEUE: change(
      "8",
      listsDuringLock(40, 700, (release) => release),
      { served: true, refused: true },
      { served: true, refused: false }
    ),
    DATABASE_POOL_SIZE: none("5", connection),
    DATABASE_CONNECT_TIMEOUT: none("5 seconds", connection),
    DATABASE_CONNECTION_MAX_AGE: none("1 minute", connection),
    DATABASE_POOLER: none("true", connection),
    DATABASE_CA_FILE: none(join(directory, "cert.pem"), connection),
    BYOK_MIGRATE: none("check", "what is done before the service listens"),
    BYOK_DATA_DIR: none(join(directory, "data"), "where the embedded database is: DATABASE_URL is set"),
    BYOK_KEYRING_FILE: none(undefined, anotherKeyring),
    BYOK_KEYRING_COMMAND: none(undefined, anotherKeyring),
    BYOK_KEYRING_COMMAND_ENV: none(undefined, anotherKeyring),
    BYOK_MANAGEMENT_HOST: none("127.0.0.3", "another port"),
    BYOK_MANAGEMENT_PORT: none(String(management), "another port"),
    BYOK_WEBHOOK_URL: none("http://127.0.0.1:9/", "test/service/audit/Webhook.test.ts"),
    BYOK_WEBHOOK_SECRET_FILE: none(join(directory, "secret"), "test/service/audit/Webhook.test.ts"),
    BYOK_REUSE_PORT: none("true", "test/serve/SharedPort.slow.test.ts"),
    DRAIN_DELAY: none("1 millis", "test/serve/Drain.test.ts"),
    MEMORY_BUDGET: none("64 MiB", "test/http/Memory.test.ts"),
    ACCESS_LOG: change("true", logs(/\/v1\/accounts\/:account_id\/links/), true, false),
    LOG_LEVEL: change("debug", logs(/"level":"DEBUG"/), true, false),
    LOG_FORMAT: change("json", logs(/^\{"/m), true, false),
    OTEL_EXPORTER_OTLP_ENDPOINT: none(collector, tracing),
    OTEL_EXPORTER_OTLP_HEADERS: none("x-collector-key=fake", tracing),
    OTEL_SERVICE_NAME: none("changed", tracing),
    OTEL_RESOURCE_ATTRIBUTES: none("region=here", tracing),
    OTEL_TRACES_SAMPLER: none("always_on", "which requests are traced: test/telemetry/TracerLive.test.ts"),
    OTEL_TRACES_SAMPLER_ARG: none("0.5", "which requests are traced: test/telemetry/TracerLive.test.ts"),
    OTEL_TRACES_EXPORTER: none(undefined, "no traces, of which the test of traces below is the control"),
    OTEL_METRICS_EXPORTER: none("none", "no metrics: test/wiring/TelemetryLive.test.ts"),
    OTEL_METRIC_EXPORT_INTERVAL: none("50000", "no metrics: test/wiring/TelemetryLive.test.ts"),
    OTEL_SDK_DISABLED: none(undefined, "no traces, of which the test of traces below is the control")
  }
}

/** A provider of these variables, and the names that were looked up. */
const recordingProvider = (env: Variables, names: Set<string>) => {
  const provider = ConfigProvider.fromEnv({ env: { ...env } })
  return ConfigProvider.layer(
    ConfigProvider.make((path) => {
      names.add(path.join("_"))
      return provider.load(path)
    })
  )
}

/** Starts the service with these variables, and calls every operation of its socket and links API. */
const start = Effect.fnUntraced(function* (
  variables: Variables,
  sql: SqlClient.SqlClient,
  names: Set<string> = new Set()
) {
  const { layer: toWrites, writes } = takeLog()
  const provider = recordingProvider(variables, names)
  const service = Layer.unwrap(Effect.map(readSettings, (settings) => serve(settings, true)))
  yield* Layer.build(Layer.fresh(service.pipe(Layer.provide(Logging.layer), Layer.provide([toWrites, provider]))))
  const { BYOK_GATEWAY_SOCKET: socketPath = "", HOST: host = "127.0.0.1", PORT, TLS_CERT_FILE } = variables
  const socket = { socketPath }
  const port = { url: `http${TLS_CERT_FILE === undefined ? "" : "s"}://${host}:${PORT}` }
  const { url: link = "" } = yield* callEveryOperation(socket, port)
  const { data } = yield* call(socket, "POST", "/v1/accounts", { name: "an account" })
  const { account_id: account } = data as { readonly account_id: string }
  return { variables, socket, port, log: () => writes.join(""), link, account, sql } satisfies Service
})

const startThree = Effect.gen(function* () {
  const [url, directory, collector] = [yield* migratedDatabase, yield* temporaryDirectory, yield* startCollector]
  const sql = yield* adminClient(url)
  const { certificate, key } = selfSignedCertificate("127.0.0.2")
  for (const [name, text] of Object.entries({
    "cert.pem": certificate,
    "key.pem": key,
    secret: `whsec_${Buffer.alloc(32, 1).toString("base64")}\n`
  })) {
    writeFileSync(join(directory, name), text, { mode: 0o600 })
  }
  const ports = yield* Effect.all([freePort, freePort, freePort])
  const changes = changesIn(directory, ports, collector.url)
  const { PUBLIC_URL = "", ...local } = Object.fromEntries(
    Object.entries(changes).flatMap(([name, { to }]) => (to === undefined ? [] : [[name, to] as const]))
  )
  const needed = { DATABASE_URL: url, BYOK_KEYRING: ringOf("kek") }
  const names = new Set<string>()
  const startAt = (socket: string, variables: Variables) =>
    start({ ...needed, BYOK_GATEWAY_SOCKET: join(directory, socket), ...variables }, sql, names)
  return {
    changes,
    names,
    collected: collector.received,
    byDefault: yield* startAt("default", { PORT: String(ports[2]) }),
    local: yield* startAt("local", local),
    // Beside the other service: BYOK_REUSE_PORT lets it listen on the same port.
    changed: yield* startAt("changed", { ...local, PUBLIC_URL, BYOK_MANAGEMENT_PORT: "0" })
  }
})

class Services extends Context.Service<Services, Effect.Success<typeof startThree>>()("byok/test/Services") {}

/** The settings whose effect an answer shows. */
const shownNames = Object.entries(changesIn("", [], "")).flatMap(([name, { shown }]) =>
  typeof shown === "string" ? [] : [name]
)

layerLive(Layer.orDie(Layer.effect(Services, startThree)))(
  "every operation of the socket and of the links API",
  (it) => {
    it.effect("was called with every setting changed", function* () {
      const { changes, names: lookedUp } = yield* Services
      assert.sameMembers(Array.from(lookedUp), Object.keys(changes))
      for (const { shown } of Object.values(changes)) {
        if (typeof shown === "string" && shown.startsWith("test/")) assert.isTrue(existsSync(shown), shown)
      }
    })

    it.effect.each(shownNames)("shows the effect of %s", function* (name) {
      const { byDefault, changed, changes, local } = yield* Services
      const { shown = "" } = changes[name] ?? {}
      if (typeof shown === "string") return
      assert.notDeepEqual(shown.changed, shown.byDefault)
      assert.deepStrictEqual(yield* shown.look(shown.local === true ? local : changed), shown.changed)
      assert.deepStrictEqual(yield* shown.look(byDefault), shown.byDefault, "by default (control)")
    })

    it.effect("is traced to the collector that the settings name", function* () {
      const { collected } = yield* Services
      const spans = ["POST /v1/accounts/:account_id/links", "PUT /api/links/v1/link/token"]
      yield* eventually("the spans arrive", collected, (text) => spans.every((span) => text.includes(span)))
      for (const part of ["POST /v1/traces", "x-collector-key fake", '"stringValue":"changed"', '"key":"region"']) {
        assert.include(collected(), part)
      }
    })
  }
)
