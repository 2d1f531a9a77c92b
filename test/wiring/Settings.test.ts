import { assert, describe, it, layer } from "@effect/vitest"
import { Cause, Config, ConfigProvider, Context, Duration, Effect, Exit, Layer, Option, Redacted } from "effect"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { inspect } from "node:util"
import * as Byok from "../../src/Byok.ts"
import * as Environment from "../../src/wiring/Environment.ts"
import { version } from "../../src/wiring/OtlpSettings.ts"
import { InvalidSetting, readSettings, type Settings, type TlsFiles } from "../../src/wiring/Settings.ts"
import { anyString } from "../support/memory/arbitraries.ts"
import { migratedDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import { byokScript, nowhere } from "../support/process/runByok.ts"
import { runNode } from "../support/process/runNode.ts"
import { selfSignedCertificate } from "../support/keys/selfSignedCertificate.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

type Variables = Readonly<Record<string, string>>

const read = (env: Variables) =>
  Effect.provideService(readSettings, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { ...env } }))

/** What differs from the defaults, with secrets and durations in the clear. */
const plain = ({
  database,
  databaseUrl,
  drainDelay,
  keepAliveTimeout,
  keyring,
  metricsInterval,
  otlp,
  pkcs11,
  sendTimeout,
  ...others
}: Settings) => ({
  ...others,
  keepAliveTimeout: Duration.toMillis(keepAliveTimeout),
  sendTimeout: Duration.toMillis(sendTimeout),
  drainDelay: Duration.toMillis(drainDelay),
  ...database,
  connectTimeout: Duration.toMillis(database.connectTimeout),
  statementTimeout: Duration.toMillis(database.statementTimeout),
  deadline: Duration.toMillis(database.deadline),
  maxAge: Duration.toMillis(database.maxAge),
  databaseUrl: Option.map(databaseUrl, Redacted.value),
  keyring: Option.map(keyring, Redacted.value),
  tokenModule: pkcs11.module,
  token: pkcs11.token,
  tokenPin: Option.map(pkcs11.pin, Redacted.value),
  tokenPinFile: pkcs11.pinFile,
  tokenKeys: pkcs11.keys,
  tokenDeadline: Duration.toMillis(pkcs11.deadline),
  serviceName: otlp.resource.serviceName,
  traces: otlp.traces,
  metrics: otlp.metrics,
  headers: Redacted.value(otlp.headers),
  sampling: otlp.sampling,
  metricsInterval: Duration.toMillis(metricsInterval)
})

const defaults = {
  host: "127.0.0.1",
  port: 3000,
  tls: Option.none<TlsFiles>(),
  maxConnections: 10_000,
  maxCredentials: 1000,
  keepAliveTimeout: 5000,
  sendTimeout: 10_000,
  drainDelay: 0,
  reusePort: false,
  accessLog: false,
  poolSize: 10,
  connectTimeout: 1000,
  statementTimeout: 2500,
  deadline: 3000,
  maxAge: 600_000,
  queue: 2000,
  batching: true,
  pooler: false,
  databaseUrl: Option.none<string>(),
  databaseCaFile: Option.none<string>(),
  migrate: "auto" as "auto" | "check",
  dataDirectory: ".byok",
  keyring: Option.none<string>(),
  keyringFile: Option.none<string>(),
  tokenModule: Option.none<string>(),
  token: Option.none<string>(),
  tokenPin: Option.none<string>(),
  tokenPinFile: Option.none<string>(),
  tokenKeys: Option.none<ReadonlyArray<string>>(),
  tokenDeadline: 2000,
  serviceName: "byok",
  traces: Option.none<string>(),
  metrics: Option.none<string>(),
  headers: {} as Readonly<Record<string, string>>,
  sampling: { ratio: 1, parentDecides: true },
  metricsInterval: 60_000,
  management: Option.none<{ readonly host: string; readonly port: number }>(),
  gatewaySocket: Option.none<string>()
}

interface Setting {
  readonly good: ReadonlyArray<readonly [text: string, read: Partial<typeof defaults>]>
  readonly bad?: { readonly texts: ReadonlyArray<string>; readonly sentence: string }
}

const whole = (low: number, high: number, of: (value: number) => Partial<typeof defaults>): Setting => ({
  good: [low, low + 1, high].map((value) => [String(value), of(value)]),
  bad: {
    texts: [String(low - 1), String(high + 1), "1.5", "ten", " ", "NaN", "Infinity", "1_0"],
    sentence: `must be a whole number from ${low} to ${high}.`
  }
})

const text = (of: (value: string) => Partial<typeof defaults>): Setting => ({
  good: ["a", "a b", "/ä/ö"].map((value) => [value, of(value)])
})

const flag = (of: (value: boolean) => Partial<typeof defaults>): Setting => ({
  good: [true, false].map((value) => [String(value), of(value)]),
  bad: { texts: ["perhaps", "2", "TRUE!"], sentence: "must be true or false." }
})

/** Durations by their texts; zero is allowed if it is among them. */
const duration = (good: Record<string, number>, of: (millis: number) => Partial<typeof defaults>): Setting => ({
  good: Object.entries(good).map(([text, millis]) => [text, of(millis)]),
  bad: {
    texts: [
      "soon",
      "3",
      "seconds",
      "-1 seconds",
      "2 hours",
      "Infinity",
      "-Infinity",
      ...("0 seconds" in good ? [] : ["0 millis"])
    ],
    sentence: 'must be a duration such as "2500 millis" or "3 seconds".'
  }
})

const choice = (
  good: Record<string, Partial<typeof defaults>>,
  texts: ReadonlyArray<string>,
  names: string
): Setting => ({
  good: Object.entries(good),
  bad: { texts, sentence: `must be ${names}.` }
})

const url = (good: Setting["good"]): Setting => ({
  good,
  bad: {
    texts: ["not a url", "localhost:4318", "//localhost", "ftp://localhost", "http://", "http://u@h", "http://:p@h"],
    sentence: "must be an http or https URL without user and password."
  }
})

const headers: Setting = {
  good: [["api-key=secret,b=1", { headers: { "api-key": "secret", b: "1" } }]],
  bad: {
    texts: ["canary", "=canary", "a b=canary", "a:b=canary", "a=%", "a=%0a", "a=%c3%a4"],
    sentence: "must be headers such as name=value, separated by commas, their values percent-encoded."
  }
}

const sampled = (ratio: number, parentDecides: boolean) => ({ sampling: { ratio, parentDecides } })
const samplers = {
  always_on: sampled(1, false),
  always_off: sampled(0, false),
  traceidratio: sampled(1, false),
  parentbased_always_on: sampled(1, true),
  parentbased_always_off: sampled(0, true),
  parentbased_traceidratio: sampled(1, true)
}

const settings: Record<string, Setting> = {
  HOST: text((host) => ({ host })),
  PORT: whole(0, 65535, (port) => ({ port })),
  MAX_CONNECTIONS: whole(1, 1_000_000, (maxConnections) => ({ maxConnections })),
  MAX_CREDENTIALS: whole(1, 5_000_000, (maxCredentials) => ({ maxCredentials })),
  KEEP_ALIVE_TIMEOUT: duration({ "65 seconds": 65_000 }, (keepAliveTimeout) => ({ keepAliveTimeout })),
  SEND_TIMEOUT: duration({ "250 millis": 250 }, (sendTimeout) => ({ sendTimeout })),
  DRAIN_DELAY: duration({ "0 seconds": 0, "15 seconds": 15_000 }, (drainDelay) => ({ drainDelay })),
  BYOK_REUSE_PORT: flag((reusePort) => ({ reusePort })),
  ACCESS_LOG: flag((accessLog) => ({ accessLog })),
  DATABASE_URL: text((url) => ({ databaseUrl: Option.some(url) })),
  BYOK_MIGRATE: choice(
    { auto: { migrate: "auto" }, check: { migrate: "check" } },
    ["never", "Check", "true"],
    "auto or check"
  ),
  DATABASE_CA_FILE: text((file) => ({ databaseCaFile: Option.some(file) })),
  DATABASE_POOL_SIZE: whole(1, 1000, (poolSize) => ({ poolSize })),
  DATABASE_QUEUE: whole(1, 1_000_000, (queue) => ({ queue })),
  DATABASE_CONNECT_TIMEOUT: duration({ "250 millis": 250, "1 minute": 60_000 }, (connectTimeout) => ({
    connectTimeout
  })),
  DATABASE_STATEMENT_TIMEOUT: duration({ "1 second": 1000, "2999 millis": 2999 }, (statementTimeout) => ({
    statementTimeout
  })),
  DATABASE_DEADLINE: duration({ "2501 millis": 2501, "1 minute": 60_000 }, (deadline) => ({ deadline })),
  DATABASE_BATCHING: flag((batching) => ({ batching })),
  DATABASE_CONNECTION_MAX_AGE: duration({ "1 second": 1000, "1 hour": 3_600_000 }, (maxAge) => ({ maxAge })),
  DATABASE_POOLER: flag((pooler) => ({ pooler })),
  BYOK_DATA_DIR: text((dataDirectory) => ({ dataDirectory })),
  BYOK_KEYRING: text((keyring) => ({ keyring: Option.some(keyring) })),
  BYOK_KEYRING_FILE: text((file) => ({ keyringFile: Option.some(file) })),
  BYOK_PKCS11_MODULE: text((file) => ({ tokenModule: Option.some(file) })),
  BYOK_PKCS11_TOKEN: text((label) => ({ token: Option.some(label) })),
  BYOK_PKCS11_PIN: text((pin) => ({ tokenPin: Option.some(pin) })),
  BYOK_PKCS11_PIN_FILE: text((file) => ({ tokenPinFile: Option.some(file) })),
  BYOK_PKCS11_KEYS: choice(
    { "kek-1": { tokenKeys: Option.some(["kek-1"]) }, "kek.2_b,K": { tokenKeys: Option.some(["kek.2_b", "K"]) } },
    [",", "a,", "a, b", "a,b,a", "ä", "a".repeat(65)],
    "distinct key ids, separated by commas"
  ),
  BYOK_PKCS11_DEADLINE: duration({ "250 millis": 250 }, (tokenDeadline) => ({ tokenDeadline })),
  OTEL_EXPORTER_OTLP_ENDPOINT: url(
    ["http://127.0.0.1:4318", "http://127.0.0.1:4318/", "https://collector.example.org/otlp/?tenant=1"].map((url) => {
      const at = (signal: string) => Option.some(new URL(url).href.replace(/\/(?=$|\?)/, `/v1/${signal}`))
      return [url, { traces: at("traces"), metrics: at("metrics") }]
    })
  ),
  OTEL_EXPORTER_OTLP_HEADERS: headers,
  OTEL_SERVICE_NAME: text((serviceName) => ({ serviceName })),
  OTEL_RESOURCE_ATTRIBUTES: choice(
    { "service.name=keys,deployment.environment.name=a%2Cb": { serviceName: "keys" }, "a = b": {} },
    ["canary", "a=%", "a=b,canary", "=b"],
    "pairs such as key=value, separated by commas, their values percent-encoded"
  ),
  OTEL_SDK_DISABLED: { ...flag(() => ({})), good: [["true", {}]] },
  OTEL_TRACES_EXPORTER: choice({ none: {} }, ["zipkin", "OTLP"], "otlp or none"),
  OTEL_METRICS_EXPORTER: choice({ otlp: {} }, ["canary"], "otlp or none"),
  OTEL_TRACES_SAMPLER: choice(samplers, ["jaeger_remote", "Always_on"], `one of ${Object.keys(samplers).join(", ")}`),
  OTEL_METRIC_EXPORT_INTERVAL: whole(1, 9_999_999, (metricsInterval) => ({ metricsInterval })),
  BYOK_GATEWAY_SOCKET: { good: [["/run/byok/gateway.sock", { gatewaySocket: Option.some("/run/byok/gateway.sock") }]] },
  BYOK_MANAGEMENT_PORT: whole(0, 65535, (port) => ({ management: Option.some({ host: "127.0.0.1", port }) })),
  BYOK_MANAGEMENT_HOST: text(() => ({})),
  OTEL_TRACES_SAMPLER_ARG: choice({ "0.5": {} }, ["1.1", "-0.1", "half", "NaN", "Infinity"], "a number from 0 to 1")
}

const refusalOf = (env: Variables) =>
  Effect.map(Effect.flip(read(env)), (error) => {
    assert.instanceOf(error, InvalidSetting)
    return error.message
  })

describe("settings", () => {
  it.effect("have defaults, and an empty variable counts as unset", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(plain(yield* read({})), defaults)
      const empty = Object.fromEntries(Object.keys(settings).map((name) => [name, ""]))
      assert.deepStrictEqual(plain(yield* read(empty)), defaults)
    })
  )

  it.effect.each(Object.entries(settings).flatMap(([name, { good }]) => good.map((pair) => [name, ...pair] as const)))(
    "%s=%s is accepted",
    ([name, given, expected]) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(plain(yield* read({ [name]: given })), { ...defaults, ...expected })
      })
  )

  it.effect.each(
    Object.entries(settings).flatMap(([name, { bad }]) =>
      (bad?.texts ?? []).map((given) => [name, given, `${name} ${bad?.sentence}`] as const)
    )
  )("%s=%j is refused in one sentence that names it and what it expects", ([name, given, sentence]) =>
    Effect.gen(function* () {
      assert.strictEqual(yield* refusalOf({ [name]: given }), sentence)
    })
  )

  it.effect.each<readonly [name: string, instead: string]>([
    ["BYOK_PROCESSES", "run more instances instead, on other machines or on one port with BYOK_REUSE_PORT=true"],
    ...["TRACES_ENDPOINT", "METRICS_ENDPOINT", "TRACES_HEADERS", "METRICS_HEADERS"].map(
      (name) =>
        [
          `OTEL_EXPORTER_OTLP_${name}`,
          "traces and metrics go to OTEL_EXPORTER_OTLP_ENDPOINT with OTEL_EXPORTER_OTLP_HEADERS, and OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER turns one of them off"
        ] as const
    )
  ])("of an earlier version are refused with what to do instead, unless empty: %s", ([name, instead]) =>
    Effect.gen(function* () {
      assert.strictEqual(yield* refusalOf({ [name]: "1" }), `${name} is no longer a setting: ${instead}.`)
      assert.deepStrictEqual(plain(yield* read({ [name]: "" })), defaults)
    })
  )

  it.effect("of the server's own certificate come in a pair (F19)", () =>
    Effect.gen(function* () {
      const given = yield* read({ TLS_CERT_FILE: "cert.pem", TLS_KEY_FILE: "key.pem" })
      assert.deepStrictEqual(given.tls, Option.some({ certificateFile: "cert.pem", keyFile: "key.pem" }))
    })
  )

  it.effect("of one signal turn it off, and one turns off all", () =>
    Effect.gen(function* () {
      const all = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://h", OTEL_EXPORTER_OTLP_HEADERS: "a=all%20of,b=it" }
      const [traces, metrics] = [Option.some("http://h/v1/traces"), Option.some("http://h/v1/metrics")]
      const both = plain(yield* read(all))
      assert.deepStrictEqual([both.traces, both.metrics, both.headers], [traces, metrics, { a: "all of", b: "it" }])
      const none = plain(yield* read({ ...all, OTEL_TRACES_EXPORTER: "none" }))
      assert.deepStrictEqual([none.traces, none.metrics], [Option.none(), metrics])
      const disabled = plain(yield* read({ ...all, OTEL_SDK_DISABLED: "true" }))
      assert.deepStrictEqual([disabled.traces, disabled.metrics], [Option.none(), Option.none()])
    })
  )

  it.effect("of a ratio take its argument", () =>
    Effect.gen(function* () {
      const given = yield* read({ OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.25" })
      assert.deepStrictEqual(given.otlp.sampling, { ratio: 0.25, parentDecides: false })
    })
  )

  it.effect("of the resource keep its attributes, and each process has an id of its own", () =>
    Effect.gen(function* () {
      const own = (yield* read({ OTEL_RESOURCE_ATTRIBUTES: "service.version=9,a=b%2Cc,d=" })).otlp.resource
      assert.deepStrictEqual(own.attributes, {
        a: "b,c",
        d: "",
        "service.instance.id": own.attributes["service.instance.id"]
      })
      assert.match(own.attributes["service.instance.id"], /^[0-9a-f-]{36}$/)
      assert.strictEqual(own.serviceVersion, version)
      const given = (yield* read({ OTEL_RESOURCE_ATTRIBUTES: "service.instance.id=pod-1" })).otlp.resource
      assert.strictEqual(given.attributes["service.instance.id"], "pod-1")
    })
  )

  it.effect.each<readonly [env: Variables, sentence: string]>([
    [{ DATABASE_DEADLINE: "2500 millis" }, "DATABASE_DEADLINE must be longer than DATABASE_STATEMENT_TIMEOUT."],
    [{ DATABASE_STATEMENT_TIMEOUT: "5 seconds" }, "DATABASE_DEADLINE must be longer than DATABASE_STATEMENT_TIMEOUT."],
    [{ BYOK_KEYRING: "a", BYOK_KEYRING_FILE: "b" }, "BYOK_KEYRING and BYOK_KEYRING_FILE must not both be set."],
    [{ TLS_CERT_FILE: "a" }, "TLS_CERT_FILE and TLS_KEY_FILE must be set together."],
    [{ TLS_KEY_FILE: "a", TLS_CERT_FILE: "" }, "TLS_CERT_FILE and TLS_KEY_FILE must be set together."],
    [
      { BYOK_PKCS11_PIN: "1", BYOK_PKCS11_PIN_FILE: "b" },
      "BYOK_PKCS11_PIN and BYOK_PKCS11_PIN_FILE must not both be set."
    ]
  ])("%j contradict each other", ([env, sentence]) =>
    Effect.gen(function* () {
      assert.strictEqual(yield* refusalOf(env), sentence)
    })
  )

  it.effect.prop(
    "whatever is set, a refusal names a setting and holds no value (T4)",
    Object.fromEntries(Object.keys(settings).map((name) => [name, anyString])),
    (given) =>
      Effect.gen(function* () {
        const env = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, `canary${value}`]))
        const exit = yield* Effect.exit(read(env))
        assert(Exit.isFailure(exit), "no number and no duration begins with a canary")
        const error = Cause.squash(exit.cause)
        assert.instanceOf(error, InvalidSetting)
        assert.isTrue(Object.keys(settings).some((name) => error.message.startsWith(`${name} `)))
        assert.notInclude(inspect(exit, { depth: null }) + Cause.pretty(exit.cause) + String(error), "canary")
      })
  )

  it.effect("that are secret are removed from the process's environment, and the others stay", () =>
    Effect.gen(function* () {
      const given = {
        DATABASE_URL: "postgres://u:canary@localhost/d",
        BYOK_KEYRING: "canary",
        BYOK_PKCS11_PIN: "canary",
        OTEL_EXPORTER_OTLP_HEADERS: "a=canary",
        BYOK_DATA_DIR: "kept"
      }
      const before = { ...process.env }
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          for (const name of Object.keys(given)) Reflect.deleteProperty(process.env, name)
          Object.assign(process.env, before)
        })
      )
      Object.assign(process.env, given)
      const copy = ConfigProvider.fromEnv()
      const settings = yield* Effect.provide(readSettings, Environment.layer)
      const { dataDirectory, databaseUrl, keyring, tokenPin } = plain(settings)
      assert.deepStrictEqual(
        [databaseUrl, keyring, tokenPin],
        [Option.some(given.DATABASE_URL), Option.some(given.BYOK_KEYRING), Option.some(given.BYOK_PKCS11_PIN)]
      )
      assert.strictEqual(dataDirectory, "kept")
      assert.strictEqual(process.env["BYOK_DATA_DIR"], "kept")
      assert.notInclude(JSON.stringify(process.env) + inspect(settings.otlp, { depth: null }), "canary")

      const answers = Effect.forEach(Object.keys(given), (name) => Effect.option(Config.String(name)))
      const { BYOK_DATA_DIR, ...secrets } = given
      assert.deepStrictEqual(yield* Effect.provide(answers, Environment.layer), [
        ...Object.keys(secrets).map(() => Option.none()),
        Option.some(BYOK_DATA_DIR)
      ])
      assert.deepStrictEqual(
        yield* Effect.provideService(answers, ConfigProvider.ConfigProvider, copy),
        Object.values(given).map((value) => Option.some(value))
      )
    })
  )

  it("are in the table of docs/settings.md with the same defaults, and no others are", () => {
    const page = readFileSync(join(import.meta.dirname, "../../docs/settings.md"), "utf8")
    const rows = page.split("\n").filter((line) => line.startsWith("| `"))
    const cells = rows.map((row) => row.split("|").map((cell) => cell.trim().replaceAll("`", "")))
    const table = Object.fromEntries(cells.map(([, names = "", byDefault = ""]) => [names, byDefault]))
    assert.deepInclude(table, {
      "HOST, PORT": "127.0.0.1, 3000",
      MAX_CONNECTIONS: "10000",
      KEEP_ALIVE_TIMEOUT: "5 seconds",
      SEND_TIMEOUT: "10 seconds",
      DRAIN_DELAY: "0 seconds",
      ACCESS_LOG: "false",
      DATABASE_POOL_SIZE: "10",
      DATABASE_POOLER: "false",
      DATABASE_CONNECT_TIMEOUT: "1 second",
      DATABASE_STATEMENT_TIMEOUT: "2500 millis",
      DATABASE_DEADLINE: "3 seconds",
      DATABASE_CONNECTION_MAX_AGE: "10 minutes",
      DATABASE_QUEUE: "2000",
      BYOK_PKCS11_DEADLINE: "2 seconds",
      BYOK_DATA_DIR: ".byok",
      "LOG_LEVEL, LOG_FORMAT": "info, pretty"
    })
    assert.sameMembers(
      Object.keys(table).flatMap((names) => names.split(/, | or /)),
      [...Object.keys(settings), "TLS_CERT_FILE", "TLS_KEY_FILE", "LOG_LEVEL", "LOG_FORMAT"]
    )
  })
})

class Given extends Context.Service<Given, Settings>()("byok/test/Given") {}

const GivenLive = Layer.effect(Given, Effect.map(migratedDatabase, settingsFor))

/** The sentence with which the service refuses to start. */
const refusalToStart = (change: (settings: Settings) => Settings) =>
  Effect.gen(function* () {
    const exit = yield* Effect.exit(Layer.build(Byok.layerWith(change(yield* Given))))
    assert(Exit.isFailure(exit))
    const error = Cause.squash(exit.cause)
    assert.instanceOf(error, InvalidSetting)
    assert.notInclude(inspect(exit, { depth: null }), "canary")
    return error.message
  })

layer(GivenLive)("the service does not start", (it) => {
  it.effect(
    "with DATABASE_URL but no keyring, before it waits for a database that does not exist: none is generated",
    () =>
      Effect.gen(function* () {
        const databaseUrl = Option.some(Redacted.make("postgres://u@127.0.0.1:1/d"))
        for (const change of [{}, { databaseUrl }]) {
          assert.strictEqual(
            yield* refusalToStart((given) => ({ ...given, ...change, keyring: Option.none() })),
            "BYOK_KEYRING_FILE or BYOK_KEYRING must be set when DATABASE_URL is: `byok keyring generate` makes a keyring."
          )
        }
      })
  )

  it.effect("without a keyring: the program ends with that sentence and exit code 1", () =>
    Effect.gen(function* () {
      const { databaseUrl } = yield* Given
      const DATABASE_URL = Redacted.value(Option.getOrThrow(databaseUrl))
      const directory = yield* temporaryDirectory
      const variables = { ...nowhere, DATABASE_URL, PORT: "0" }
      const { code, stderr, stdout } = yield* runNode([byokScript, "serve"], { cwd: directory, variables })
      assert.deepStrictEqual({ code, stdout }, { code: 1, stdout: "" })
      assert.match(stderr, /^BYOK_KEYRING_FILE or BYOK_KEYRING must be set .*`byok keyring generate`.*\n$/)
      assert.isFalse(existsSync(join(directory, ".byok")))
    })
  )

  it.effect.each<readonly [keyring: string, found: string]>([
    ["canary", "found 6 characters in another form"],
    ["canary:canary", "found base64 that is not canonical"],
    ["canary:Y2FuYXJ5", "found 6 bytes"],
    [`canary:${Buffer.alloc(32, 7).toString("base64")}`, "found 32 equal bytes"]
  ])("with BYOK_KEYRING=%s: the sentence names it and the length found, never the value", ([keyring, found]) =>
    Effect.gen(function* () {
      const sentence = yield* refusalToStart((given) => ({ ...given, keyring: Option.some(Redacted.make(keyring)) }))
      assert.match(sentence, /^BYOK_KEYRING: key 1: expected id:base64 of 32 bytes/)
      assert.include(sentence, found)
    })
  )

  it.effect("with a BYOK_KEYRING_FILE that others can read, or that is missing", () =>
    Effect.gen(function* () {
      const file = join(yield* temporaryDirectory, "keyring")
      const refused = refusalToStart((given) => ({ ...given, keyring: Option.none(), keyringFile: Option.some(file) }))
      assert.strictEqual(
        yield* refused,
        "BYOK_KEYRING_FILE: expected a file that can be read: no such file or directory (ENOENT)."
      )
      writeFileSync(file, "canary", { mode: 0o644 })
      assert.strictEqual(yield* refused, "BYOK_KEYRING_FILE: expected a file of mode 0400 or 0600; found 0644.")
    })
  )

  it.effect("with a DATABASE_CA_FILE that is missing or holds no certificates", () =>
    Effect.gen(function* () {
      const file = join(yield* temporaryDirectory, "canary")
      const refused = refusalToStart((given) => ({ ...given, databaseCaFile: Option.some(file) }))
      const found = (what: string) => `DATABASE_CA_FILE must be a file of PEM certificates; found ${what}.`
      assert.strictEqual(
        yield* refused,
        "DATABASE_CA_FILE must be a readable file: no such file or directory (ENOENT)."
      )
      const { certificate, key } = selfSignedCertificate("localhost")
      const damaged = certificate.replace(/\nMII/, "\nAAA")
      for (const [text, what] of [
        ["x", "none"],
        ["", "none"],
        [key, "none"],
        [damaged, "a damaged one"],
        [certificate + damaged, "a damaged one"],
        [certificate.slice(0, -10), "a damaged one"],
        [certificate.slice(0, -30) + certificate, "a damaged one"]
      ] as const) {
        writeFileSync(file, text)
        assert.strictEqual(yield* refused, found(what), text)
      }
    })
  )
})

layer(GivenLive)("the service starts", (it) => {
  it.effect("with a DATABASE_CA_FILE of several certificates and text around them", () =>
    Effect.gen(function* () {
      const file = join(yield* temporaryDirectory, "ca.pem")
      const [one, other] = ["one", "other"].map((name) => selfSignedCertificate(name).certificate)
      writeFileSync(file, `# One\n${one}\r\n# Other\r\n${other?.replaceAll("\n", "\r\n")}`)
      const settings = { ...(yield* Given), databaseCaFile: Option.some(file) }
      assert.isTrue(Exit.isSuccess(yield* Effect.exit(Layer.build(Byok.layerWith(settings)))))
    })
  )
})
