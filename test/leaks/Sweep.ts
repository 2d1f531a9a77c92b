import { assert } from "@effect/vitest"
import { randomBytes } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect, Exit, Redacted, Scope } from "effect"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { createAccount, textIn } from "../support/process/CommandLine.ts"
import { databaseContent, leakSearch } from "../support/keys/leakSearch.ts"
import { endpointIn } from "../support/database/embedded.ts"
import { databaseProxy } from "../support/database/DatabaseProxy.ts"
import { firstStart, newDirectory } from "../support/process/firstStart.ts"
import { answerText } from "../support/http/RawConnection.ts"
import { bearer, json, type Request, send } from "../support/http/HttpProbe.ts"
import { withoutPrefix } from "../support/keys/issuedKey.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { managementUrl, type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"
import { runByok } from "../support/process/runByok.ts"
import { runNode } from "../support/process/runNode.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { type Channel, channels } from "./Channel.ts"
import { startCollector } from "./Collector.ts"
import { databaseFailures, type Failure, sealingIsRefused, rowIsRefused } from "./Failure.ts"
import * as Gateways from "./Gateways.ts"
import { inputs } from "./Inputs.ts"
import { leasePlants, leaseUses } from "./leases.ts"
import { plants } from "./plants.ts"
import { filesOf, startTalkative } from "./TalkativePostgres.ts"

/** How many times a secret was found in each channel. */
export type Hits = Readonly<Record<Channel, number>>

/** Everything that the service emitted for all inputs, with each of its parts working and failing. */
export interface Swept {
  /** Hits by the input that had the secret. */
  readonly hits: Readonly<Record<string, Hits>>
  /** The number of answers of each status, by the failing part. */
  readonly statuses: Readonly<Record<string, Readonly<Record<number, number>>>>
  /** The exit codes of wrong command lines. */
  readonly exitCodes: ReadonlyArray<number | null>
  /** Two credentials of one key and one of another, as the database has them. */
  readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>>
  /** The output of each search for the key of the first two. */
  readonly found: ReadonlyArray<string>
}

/** Makes a secret that no text has by chance, with characters that URLs encode, and with no hyphen first as a flag has. */
const newSecret = () => `s${randomBytes(15).toString("base64url")}+/=${randomBytes(12).toString("base64url")}`
const latin1 = (text: string) => Buffer.from(text, "latin1")
/** Makes an id of the characters that `X-Request-Id` may have. */
const newRequestId = () => randomBytes(20).toString("base64url")

/** Levels and formats of the processes that log less than everything. */
const quieter = [
  { LOG_LEVEL: "debug", LOG_FORMAT: "pretty" },
  { LOG_LEVEL: "info", LOG_FORMAT: "logfmt" },
  { LOG_LEVEL: "warn", LOG_FORMAT: "json" },
  { LOG_LEVEL: "error", LOG_FORMAT: "pretty" },
  { LOG_LEVEL: "fatal", LOG_FORMAT: "logfmt" },
  { LOG_LEVEL: "none", LOG_FORMAT: "json" }
]

/** Mistakes of people on the command line and in settings, with secrets in them. */
const mistakes = (
  given: Readonly<Record<"argument" | "password" | "keyring" | "keyringFile" | "webhookFile" | "word", string>>
): ReadonlyArray<readonly [args: ReadonlyArray<string>, variables: Record<string, string>]> => [
  [["api-key", "revoke", given.argument, "--json"], {}],
  [["api-key", "revoke", "0".repeat(64), given.argument], {}],
  [["api-key", "revoke", `--${given.argument.slice(0, 20)}`], {}],
  [["workspace", "list", "--account", given.argument], {}],
  [["serve", `--keyring=${given.argument}`], {}],
  [[given.argument], {}],
  [[given.word], {}],
  [["migrate"], { DATABASE_URL: `postgres://byok:${given.password}@db.example.org/byok` }],
  [["migrate"], { DATABASE_URL: `postgres://byok:${given.password}@127.0.0.1:${given.password}/byok` }],
  [["serve"], { BYOK_KEYRING: `kek:${given.keyring}` }],
  [["serve"], { BYOK_KEYRING_FILE: given.keyringFile }],
  [["webhook", "test"], { BYOK_WEBHOOK_SECRET_FILE: given.webhookFile }]
]

const once = Effect.gen(function* () {
  const secrets: Record<string, string | Buffer> = {}
  const secretOf = (name: string, value = newSecret()) => {
    secrets[name] = value
    return value
  }
  const emitted: Array<readonly [Channel, string]> = []
  const emit = (channel: Channel, text: string) => void emitted.push([channel, text])
  const statuses: Record<string, Record<number, number>> = {}
  const call = (url: string, failing: string, request: Request, shown = (body: string) => body) =>
    Effect.map(send(url, request), (answer) => {
      const seen = (statuses[failing] ??= {})
      seen[answer.status] = (seen[answer.status] ?? 0) + 1
      emit("bodies", shown(answer.body))
      emit("headers", answerText({ ...answer, body: "" }))
      return answer
    })
  const post = (token: string, body: object, ...headers: ReadonlyArray<readonly [string, string]>): Request => ({
    method: "POST",
    path: "/api/v1/byok",
    headers: [bearer(token), json, ...headers],
    body: JSON.stringify(body)
  })

  const collector = yield* startCollector
  const directory = yield* newDirectory
  const { sql, url } = yield* startTalkative(directory.BYOK_DATA_DIR)
  const webhookSecret = randomBytes(32)
  secrets["the secret of the webhook"] = webhookSecret
  const webhookFile = join(yield* temporaryDirectory, "webhook")
  writeFileSync(webhookFile, `whsec_${webhookSecret.toString("base64")}\n`, { mode: 0o600 })
  const settings = {
    ...directory,
    // Nobody listens there, so that failures are logged.
    BYOK_WEBHOOK_URL: "http://127.0.0.1:9/events",
    BYOK_WEBHOOK_SECRET_FILE: webhookFile,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_METRIC_EXPORT_INTERVAL: "500",
    BYOK_MANAGEMENT_PORT: "0",
    DATABASE_STATEMENT_TIMEOUT: "1 second",
    DATABASE_DEADLINE: "1500 millis",
    ACCESS_LOG: "true",
    LOG_LEVEL: "trace",
    LOG_FORMAT: "pretty"
  }
  // On standard output the first start prints the management key, once and on purpose.
  const { key: token, stderr } = yield* Effect.scoped(firstStart(settings))
  emit("standard error", stderr())
  secretOf("the management key", withoutPrefix(token))
  const keyring = readFileSync(join(directory.BYOK_DATA_DIR, "keyring"), "utf8").trim()
  secrets["the key-encryption key"] = Buffer.from(keyring.replace(/^.*:/, ""), "base64")

  /** Settings for all services but the first: only one may use a data directory. */
  const direct = { ...settings, DATABASE_URL: url, BYOK_KEYRING: keyring }

  const traceId = randomBytes(16).toString("hex")
  const secretInputs = inputs.map(([name, input]) => [secretOf(name), input] as const)
  const withEverything = post(
    token,
    { ...minimal, key: secretOf("a key with a name"), name: secretOf("the name of a credential") },
    ["X-Request-Id", secretOf("the id of a request", newRequestId())],
    ["traceparent", `00-${traceId}-${"1".repeat(16)}-01`]
  )
  const requests = () => [...secretInputs.flatMap(([secret, input]) => input(secret, token)), withEverything]
  const sendAll = (services: ReadonlyArray<ServiceProcess>, failing: string) =>
    Effect.forEach(
      services.flatMap((service) => requests().map((request) => [service.url, request] as const)),
      ([url, request]) => call(url, failing, request),
      { concurrency: 8, discard: true }
    )
  const sendAllWhile = (services: ReadonlyArray<ServiceProcess>, { begin, name }: Failure) =>
    Effect.scoped(Effect.andThen(Effect.orDie(begin(sql)), sendAll(services, name)))

  /** What the management port of each shows. */
  const scrape = (services: ReadonlyArray<ServiceProcess>) =>
    Effect.forEach(
      services,
      (service) =>
        Effect.gen(function* () {
          const { body } = yield* send(yield* managementUrl(service), { path: "/metrics" })
          assert.include(body, "http_server_request_duration_seconds_count")
          emit("metrics", body)
        }),
      { discard: true }
    )

  const twice = secretOf("a key given twice")
  const labelled = twice.slice(0, 3) + newSecret().slice(3, -4) + twice.slice(-4)
  const keys = [twice, twice, secretOf("a key with the same label", labelled)]
  const serveAndFail = Effect.gen(function* () {
    const proxy = yield* Scope.fork(yield* Effect.scope)
    const { target } = yield* Scope.provide(databaseProxy(url), proxy)
    const own = Redacted.value(endpointIn(directory.BYOK_DATA_DIR).password)
    const password = secretOf("the password of the database", own)
    const proxied = {
      ...settings,
      DATABASE_URL: `postgres://byok:${password}@127.0.0.1:${target.port}/postgres`,
      BYOK_KEYRING: keyring
    }
    const [embedded, plain, structured] = yield* Effect.all(
      [
        startService(settings),
        startService({ ...proxied, LOG_FORMAT: "logfmt" }),
        startService({ ...proxied, LOG_FORMAT: "json" })
      ],
      { concurrency: 2 }
    )
    const loud = [embedded, plain, structured]
    yield* sendAllWhile(loud, sealingIsRefused)

    const quiet = yield* Effect.forEach(quieter, (changes) => startService({ ...direct, ...changes }), {
      concurrency: 2
    })
    yield* sendAll([...loud, ...quiet], "nothing")
    const ids = yield* Effect.forEach(keys, (key) =>
      Effect.gen(function* () {
        const id = createdId(yield* call(embedded.url, "nothing", post(token, { ...minimal, key })))
        yield* call(structured.url, "nothing", { path: `/api/v1/byok/${id}`, headers: [bearer(token)] })
        return id
      })
    )
    const replaced = post(token, { ...minimal, key: secretOf("a key that is replaced") })
    const changed = { path: `/api/v1/byok/${createdId(yield* call(embedded.url, "nothing", replaced))}` }
    for (const service of loud) {
      const body = JSON.stringify({ key: secretOf(`a new key ${service.url}`), disabled: service === structured })
      const update = { ...changed, method: "PATCH", headers: [bearer(token), json], body }
      assert.strictEqual((yield* call(service.url, "nothing", update)).status, 200)
    }
    yield* call(structured.url, "nothing", { ...changed, method: "DELETE", headers: [bearer(token)] })
    yield* sendAllWhile([...loud, ...quiet], rowIsRefused)
    yield* Effect.forEach(databaseFailures, (failure) => sendAllWhile(loud, failure))
    yield* Scope.close(proxy, Exit.void)
    yield* sendAll([plain, structured], "connections are refused")
    yield* scrape(loud)
    return { services: [...loud, ...quiet], ids }
  })

  const leak = Effect.gen(function* () {
    const account = yield* createAccount(directory)
    const leakedToken = textIn(account, "management_key")
    const service = yield* startService(direct, [join(import.meta.dirname, "LeakyService.ts")])
    yield* Effect.forEach(Object.keys(plants), (name) => {
      const key = secretOf(name)
      return call(service.url, "the service itself", post(leakedToken, { provider: "xai", key, name }))
    })
    yield* scrape([service])
    secretOf("the token in the log", withoutPrefix(leakedToken))
    return service
  })

  const routeForGateways = Effect.gen(function* () {
    const socket = join(directory.BYOK_DATA_DIR, "..", "gateway.sock")
    const service = yield* startService({ ...direct, BYOK_GATEWAY_SOCKET: socket })
    const ask = (request: Request, shown = Gateways.withoutKey) => call(socket, "the socket", request, shown)
    const dataIn = ({ body }: { readonly body: string }) =>
      (JSON.parse(body) as { readonly data: Record<string, unknown> }).data
    const account = dataIn(yield* ask(Gateways.post("/v1/accounts", { name: "a customer" })))
    const [account_id, owner] = [textIn(account, "account_id"), textIn(account, "management_key")]
    secretOf("a management key made over the socket", withoutPrefix(owner))
    const issued = dataIn(yield* ask(Gateways.post(`/v1/accounts/${account_id}/api-keys`, { name: "issued" })))
    secretOf("an API key made over the socket", withoutPrefix(textIn(issued, "key")))
    yield* ask(Gateways.post(`/v1/accounts/${account_id}/api-keys`, { name: "taken", hash: textIn(issued, "hash") }))
    const keys = Gateways.attempts.map((name) => secretOf(name))
    for (const key of keys) createdId(yield* call(service.url, "the socket", post(owner, { provider: "groq", key })))

    const asked = { account_id, model: "a/model", targets: [{ provider: "groq" }] }
    const request = Gateways.post("/v1/attempts", asked)
    const goOn = (after: object) => Gateways.post("/v1/attempts", { ...asked, after })
    const attemptIn = (body: string) => Gateways.routedIn(body).data?.next?.attempt ?? ""
    const named = ["X-Request-Id", secretOf("the id of a request over the socket", newRequestId())] as const
    const opened = yield* call(socket, "the socket", { ...request, headers: [json, named] }, Gateways.withoutKey)
    const attempt = attemptIn(opened.body)
    const misplaced = Gateways.misplaced(secretOf("a secret that a gateway misplaces"), account_id, attempt)
    yield* Effect.forEach(misplaced, (request) => ask(request))
    const second = yield* ask(goOn({ attempt, status: 429, retry_after: "30" }))
    for (const { begin } of databaseFailures) {
      yield* Effect.scoped(
        Effect.andThen(
          Effect.orDie(begin(sql)),
          Effect.forEach([...misplaced, request], (one) => ask(one))
        )
      )
    }
    const last = yield* ask(goOn({ attempt: attemptIn(second.body), status: null }), (body) => body)
    const handedOut = [opened, second, last].map(({ body }) => Gateways.routedIn(body).data?.next?.key)
    assert.deepStrictEqual(handedOut, keys)
    yield* scrape([service])
    return service
  })

  const lease = Effect.gen(function* () {
    const account_id = textIn(yield* createAccount(directory), "account_id")
    const names = [...Object.keys(leaseUses), ...Object.keys(leasePlants)]
    const keys = Object.fromEntries(names.map((name) => [name, secretOf(name)]))
    const variables = { ...direct, LEASED: JSON.stringify({ account_id, keys }) }
    return yield* runNode([join(import.meta.dirname, "LeasingProcess.ts")], { variables })
  })

  const [{ ids, services }, leaky, routed, leased] = yield* Effect.scoped(
    Effect.all([serveAndFail, leak, routeForGateways, lease])
  )
  assert.strictEqual(leased.code, 0, leased.stderr.slice(-1000))
  emit("standard error", leased.stderr)
  emit("standard output", leased.stdout)
  for (const service of [...services, leaky, routed]) {
    emit("standard error", service.stderr())
    emit("standard output", service.stdout())
  }

  const keyringFile = join(directory.BYOK_DATA_DIR, "..", "keyring-that-others-read")
  writeFileSync(keyringFile, `kek:${secretOf("a keyring that others can read")}`, { mode: 0o644 })
  const wrongWebhookFile = join(dirname(webhookFile), "wrong")
  writeFileSync(wrongWebhookFile, secretOf("a webhook's secret that is none"), { mode: 0o600 })
  const exitCodes = yield* Effect.forEach(
    mistakes({
      argument: secretOf("an argument"),
      password: secretOf("a password in a URL that is refused"),
      keyring: secretOf("a keyring that is no keyring"),
      word: secretOf("a word on the command line", `w${randomBytes(9).toString("base64url")}`),
      keyringFile,
      webhookFile: wrongWebhookFile
    }),
    ([args, variables]) =>
      Effect.map(runByok(args, { ...settings, ...variables }), ({ code, stderr, stdout }) => {
        emit("standard error", stderr)
        emit("standard output", stdout)
        return code
      }),
    { concurrency: 2 }
  )
  const found: Array<string> = []
  for (const flags of [["--all"], ["--park"]]) {
    const leaked = secretOf(`the text of leak find ${flags.join()}`)
    for (const given of [leaked, twice, latin1(`${leaked}\xff`), leaked.repeat(8_000)]) {
      const { stderr, stdout } = yield* runCommand(["leak", "find", ...flags], settings, given)
      emit("standard error", stderr)
      emit("standard output", stdout)
      if (given === twice) found.push(stdout)
    }
  }
  const stored = yield* sql<Record<string, unknown>>`SELECT * FROM credentials`
  const rows = ids.map((id) => stored.find((row) => row["id"] === id) ?? {})

  emit("spans", collector.received())
  emit("dump", yield* databaseContent(sql))
  yield* sql`CHECKPOINT`
  const hexadecimal = { "the id of a trace": traceId }
  const searches = [leakSearch(secrets), leakSearch(hexadecimal, traceId.length)]
  const hits = Object.fromEntries(
    Object.keys({ ...secrets, ...hexadecimal }).map((name) => [
      name,
      Object.fromEntries(channels.map((channel) => [channel, 0]))
    ])
  ) as Record<string, Record<Channel, number>>
  const searchIn = (channel: Channel, content: string | Uint8Array) => {
    for (const [name, count] of searches.flatMap((search) => Object.entries(search(content)))) {
      const found = hits[name]
      if (found !== undefined) found[channel] += count
    }
  }
  for (const [channel, text] of emitted) searchIn(channel, text)
  for (const [channel, bytes] of filesOf(directory.BYOK_DATA_DIR)) searchIn(channel, bytes)
  return { hits, statuses, exitCodes, rows, found } satisfies Swept
})

/** Runs the sweep once: the first test waits for it, the others read its result. */
export const sweep: Effect.Effect<Swept> = Effect.runSync(Effect.cached(Effect.orDie(Effect.scoped(once))))
