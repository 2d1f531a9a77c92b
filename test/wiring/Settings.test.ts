import { Cause, Config, ConfigProvider, Context, Duration, Effect, Exit, Layer, Option, Redacted } from "effect"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { inspect } from "node:util"
import * as Byok from "../../src/wiring/Byok.ts"
import * as Environment from "../../src/wiring/Environment.ts"
import { version } from "../../src/wiring/OtlpSettings.ts"
import { InvalidSetting, localUrlOf, publicUrlOf, readSettings, type Settings } from "../../src/wiring/Settings.ts"
import { anyString } from "../support/memory/arbitraries.ts"
import { migratedDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import { selfSignedCertificate } from "../support/keys/selfSignedCertificate.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it, layer } from "../support/it.ts"

type Variables = Readonly<Record<string, string>>

const read = (env: Variables) =>
  Effect.provideService(readSettings, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { ...env } }))

/** A value with secrets and durations in the clear, and null for unset members. */
const inTheClear = (value: unknown): unknown => {
  if (Option.isOption(value)) return Option.getOrNull(Option.map(value, inTheClear))
  if (Duration.isDuration(value)) return Duration.toMillis(value)
  return Redacted.isRedacted(value) ? Redacted.value(value) : value
}

type Plain = Readonly<Record<string, unknown>>

/** Settings by their paths; of the resource only the name. */
const plain = ({ database, otlp: { resource, ...otlp }, poolLimits, ...others }: Settings): Plain =>
  Object.fromEntries(
    Object.entries({
      "": others,
      "database.": database,
      "poolLimits.": poolLimits,
      "otlp.": otlp,
      "resource.": resource
    })
      .flatMap(([path, group]) =>
        Object.entries(group).map(([name, value]) => [path + name, inTheClear(value)] as const)
      )
      .filter(([path]) => !/^resource\.(attributes|serviceVersion)$/.test(path))
  )

const defaults: Plain = {
  host: "127.0.0.1",
  port: 3000,
  tls: null,
  maxConnections: 1_024,
  memoryBudget: Math.min(192 * 1024 * 1024, process.constrainedMemory() / 4 || Number.POSITIVE_INFINITY),
  "poolLimits.credentials": 256,
  "poolLimits.bytes": 4_194_304,
  keepAliveTimeout: 5000,
  sendTimeout: 10_000,
  drainDelay: 0,
  reusePort: false,
  publicUrl: null,
  accessLog: false,
  "database.poolSize": 10,
  "database.connectTimeout": 1000,
  "database.statementTimeout": 2500,
  "database.deadline": 3000,
  "database.maxAge": 600_000,
  "database.queue": 2000,
  "database.pooler": false,
  databaseUrl: null,
  databaseCaFile: null,
  migrate: "auto",
  dataDirectory: ".byok",
  keyring: null,
  keyringFile: null,
  keyringCommand: null,
  "resource.serviceName": "byok",
  "otlp.traces": null,
  "otlp.metrics": null,
  "otlp.headers": {},
  "otlp.sampling": { ratio: 1, parentDecides: true },
  metricsInterval: 60_000,
  management: null,
  webhook: null,
  tokensOnly: false,
  gatewaySocket: null,
  forwardSocket: null
}

interface Setting {
  readonly good: ReadonlyArray<readonly [text: string, read: Plain]>
  readonly bad?: { readonly texts: ReadonlyArray<string>; readonly sentence: string }
}

const whole = (low: number, high: number, path: string): Setting => ({
  good: [low, low + 1, high].map((value) => [String(value), { [path]: value }]),
  bad: {
    texts: [String(low - 1), String(high + 1), "1.5", "ten", " ", "NaN", "Infinity", "1_0"],
    sentence: `must be a whole number from ${low} to ${high}.`
  }
})

const text = (path: string): Setting => ({ good: ["a", "a b", "/ä/ö"].map((value) => [value, { [path]: value }]) })

const flag = (path: string): Setting => ({
  good: [true, false].map((value) => [String(value), { [path]: value }]),
  bad: { texts: ["perhaps", "2", "TRUE!"], sentence: "must be true or false." }
})

/** Durations by their texts; zero is allowed if it is among them. */
const duration = (path: string, good: Record<string, number>): Setting => ({
  good: Object.entries(good).map(([text, millis]) => [text, { [path]: millis }]),
  bad: {
    texts: [
      ...["soon", "3", "seconds", "-1 seconds", "2 hours", "Infinity", "-Infinity"],
      ...("0 seconds" in good ? [] : ["0 millis"])
    ],
    sentence: 'must be a duration such as "2500 millis" or "3 seconds".'
  }
})

const choice = (good: Record<string, Plain>, texts: ReadonlyArray<string>, names: string): Setting => ({
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
  good: [["api-key=secret,b=1", { "otlp.headers": { "api-key": "secret", b: "1" } }]],
  bad: {
    texts: ["canary", "=canary", "a b=canary", "a:b=canary", "a=%", "a=%0a", "a=%c3%a4"],
    sentence: "must be headers such as name=value, separated by commas, their values percent-encoded."
  }
}

const sampled = (ratio: number, parentDecides: boolean) => ({ "otlp.sampling": { ratio, parentDecides } })
const samplers = {
  always_on: sampled(1, false),
  always_off: sampled(0, false),
  traceidratio: sampled(1, false),
  parentbased_always_on: sampled(1, true),
  parentbased_always_off: sampled(0, true),
  parentbased_traceidratio: sampled(1, true)
}
const management = whole(0, 65535, "port")
const inBrackets = {
  texts: ["[::]", "[::1]", "[2001:db8::1]:80"],
  sentence: "must be a host name or an address, without brackets."
}

const settings: Record<string, Setting> = {
  HOST: { ...text("host"), bad: inBrackets },
  PORT: whole(0, 65535, "port"),
  PUBLIC_URL: url([
    ["https://keys.example", { publicUrl: "https://keys.example" }],
    ["http://localhost:8080/byok/", { publicUrl: "http://localhost:8080/byok" }]
  ]),
  MAX_CONNECTIONS: whole(1, 1_000_000, "maxConnections"),
  MEMORY_BUDGET: {
    good: [
      ["16 MiB", { memoryBudget: 16 * 1024 * 1024 }],
      ["1GB", { memoryBudget: 1_000_000_000 }],
      ["64 GiB", { memoryBudget: 64 * 1024 ** 3 }]
    ],
    bad: {
      texts: ["15 MiB", "65 GiB", "much", "192 MB/s", "-1 GiB"],
      sentence: 'must be a size from "16 MiB" to "64 GiB".'
    }
  },
  MAX_CREDENTIALS: whole(1, 1000, "poolLimits.credentials"),
  MAX_POOL_BYTES: whole(1_048_576, 4_194_304, "poolLimits.bytes"),
  KEEP_ALIVE_TIMEOUT: duration("keepAliveTimeout", { "65 seconds": 65_000 }),
  SEND_TIMEOUT: duration("sendTimeout", { "250 millis": 250 }),
  DRAIN_DELAY: duration("drainDelay", { "0 seconds": 0, "15 seconds": 15_000 }),
  BYOK_REUSE_PORT: flag("reusePort"),
  ACCESS_LOG: flag("accessLog"),
  DATABASE_URL: text("databaseUrl"),
  BYOK_MIGRATE: choice(
    { auto: { migrate: "auto" }, check: { migrate: "check" } },
    ["never", "Check", "true"],
    "auto or check"
  ),
  DATABASE_CA_FILE: text("databaseCaFile"),
  DATABASE_POOL_SIZE: whole(1, 1000, "database.poolSize"),
  DATABASE_QUEUE: whole(1, 1_000_000, "database.queue"),
  DATABASE_CONNECT_TIMEOUT: duration("database.connectTimeout", { "250 millis": 250, "1 minute": 60_000 }),
  DATABASE_STATEMENT_TIMEOUT: duration("database.statementTimeout", { "1 second": 1000, "2999 millis": 2999 }),
  DATABASE_DEADLINE: duration("database.deadline", { "2501 millis": 2501, "1 minute": 60_000 }),
  DATABASE_CONNECTION_MAX_AGE: duration("database.maxAge", { "1 second": 1000, "1 hour": 3_600_000 }),
  DATABASE_POOLER: flag("database.pooler"),
  BYOK_DATA_DIR: text("dataDirectory"),
  BYOK_KEYRING: text("keyring"),
  BYOK_KEYRING_FILE: text("keyringFile"),
  BYOK_KEYRING_COMMAND: {
    good: [
      ["  keyring  --from a ", { keyringCommand: { program: "keyring", args: ["--from", "a"], env: {} } }],
      ['["a b","c\\"d"]', { keyringCommand: { program: "a b", args: ['c"d'], env: {} } }]
    ],
    bad: {
      texts: [" ", "cat 'a b'", 'cat "a"', "[]", '["a",1]', '[""]', "[cat]"],
      sentence: `must be a program and its arguments, separated by blanks and without quotes, or a JSON array of them such as ["cat", "my file"].`
    }
  },
  BYOK_KEYRING_COMMAND_ENV: { good: [] },
  OTEL_EXPORTER_OTLP_ENDPOINT: url(
    ["http://127.0.0.1:4318", "http://127.0.0.1:4318/", "https://collector.example.org/otlp/?tenant=1"].map((url) => {
      const at = (signal: string) => new URL(url).href.replace(/\/(?=$|\?)/, `/v1/${signal}`)
      return [url, { "otlp.traces": at("traces"), "otlp.metrics": at("metrics") }]
    })
  ),
  OTEL_EXPORTER_OTLP_HEADERS: headers,
  OTEL_SERVICE_NAME: text("resource.serviceName"),
  OTEL_RESOURCE_ATTRIBUTES: choice(
    { "service.name=keys,deployment.environment.name=a%2Cb": { "resource.serviceName": "keys" }, "a = b": {} },
    ["canary", "a=%", "a=b,canary", "=b"],
    "pairs such as key=value, separated by commas, their values percent-encoded"
  ),
  OTEL_SDK_DISABLED: { ...flag(""), good: [["true", {}]] },
  OTEL_TRACES_EXPORTER: choice({ none: {} }, ["zipkin", "OTLP"], "otlp or none"),
  OTEL_METRICS_EXPORTER: choice({ otlp: {} }, ["canary"], "otlp or none"),
  OTEL_TRACES_SAMPLER: choice(samplers, ["jaeger_remote", "Always_on"], `one of ${Object.keys(samplers).join(", ")}`),
  OTEL_METRIC_EXPORT_INTERVAL: whole(1, 9_999_999, "metricsInterval"),
  BYOK_GATEWAY_SOCKET: text("gatewaySocket"),
  BYOK_FORWARD_SOCKET: text("forwardSocket"),
  TOKENS_ONLY: flag("tokensOnly"),
  BYOK_MANAGEMENT_PORT: {
    ...management,
    good: management.good.map(([text, read]) => [text, { management: { host: "127.0.0.1", ...read } }])
  },
  BYOK_MANAGEMENT_HOST: { good: [["a", {}]], bad: inBrackets },
  OTEL_TRACES_SAMPLER_ARG: choice({ "0.5": {} }, ["1.1", "-0.1", "half", "NaN", "Infinity"], "a number from 0 to 1")
}

const refusalOf = (env: Variables) =>
  Effect.map(Effect.flip(read(env)), (error) => {
    assert.instanceOf(error, InvalidSetting)
    return error.message
  })

const onlyOneKeyring = "Only one of BYOK_KEYRING_FILE, BYOK_KEYRING_COMMAND and BYOK_KEYRING may be set."

describe("reading the settings", () => {
  it.effect("uses the defaults for variables that are unset or empty", function* () {
    assert.deepStrictEqual(plain(yield* read({})), defaults)
    const empty = Object.fromEntries(Object.keys(settings).map((name) => [name, ""]))
    assert.deepStrictEqual(plain(yield* read(empty)), defaults)
  })

  it.effect.each(Object.entries(settings).flatMap(([name, { good }]) => good.map((pair) => [name, ...pair] as const)))(
    "accepts %s=%s",
    function* ([name, given, expected]) {
      assert.deepStrictEqual(plain(yield* read({ [name]: given })), { ...defaults, ...expected })
    }
  )

  it.effect.each(
    Object.entries(settings).flatMap(([name, { bad }]) =>
      (bad?.texts ?? []).map((given) => [name, given, `${name} ${bad?.sentence}`] as const)
    )
  )("refuses %s=%j in one sentence with the setting's name and what it expects", function* ([name, given, sentence]) {
    assert.strictEqual(yield* refusalOf({ [name]: given }), sentence)
  })

  it.effect.each<readonly [of: string, env: Variables, expected: Plain]>([
    [
      "the server's certificate and key file (F19)",
      { TLS_CERT_FILE: "cert.pem", TLS_KEY_FILE: "key.pem" },
      { tls: { certificateFile: "cert.pem", keyFile: "key.pem" } }
    ],
    [
      "the sampler and its ratio",
      { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.25" },
      sampled(0.25, false)
    ]
  ])("reads two settings together: %s", function* ([, env, expected]) {
    assert.deepStrictEqual(plain(yield* read(env)), { ...defaults, ...expected })
  })

  const loopbackTls = { HOST: "::1", TLS_CERT_FILE: "cert.pem", TLS_KEY_FILE: "key.pem" }
  it.effect.each<readonly [settings: string, publicUrl: string, env: Variables]>([
    ["the defaults", "http://127.0.0.1:3000", {}],
    ["HOST and PORT", "http://localhost:8080", { HOST: "localhost", PORT: "8080" }],
    ["HOST=::1 and a certificate", "https://[::1]:3000", loopbackTls],
    ["PUBLIC_URL", "https://keys.example", { HOST: "0.0.0.0", PUBLIC_URL: "https://keys.example/" }]
  ])("derives the public URL of links from %s: %s", function* ([, expected, env]) {
    assert.strictEqual(publicUrlOf(yield* read(env)), expected)
  })

  it.effect.each(["0.0.0.0", "::", "192.0.2.1"])(
    "does not know the public URL of links if only HOST=%s is set, which is no loopback address",
    function* (HOST) {
      assert.isUndefined(publicUrlOf(yield* read({ HOST })))
    }
  )

  it.effect.each<readonly [settings: string, localUrl: string, env: Variables]>([
    ["the defaults", "http://127.0.0.1:3000", {}],
    ["HOST=0.0.0.0", "http://localhost:3000", { HOST: "0.0.0.0" }],
    ["HOST=::", "http://localhost:3000", { HOST: "::" }],
    ["HOST=192.0.2.1", "http://192.0.2.1:3000", { HOST: "192.0.2.1" }],
    ["HOST=2001:db8::1", "http://[2001:db8::1]:3000", { HOST: "2001:db8::1" }]
  ])("derives a URL that browsers on this machine can open, for the first link, from %s: %s", function* (row) {
    const [, expected, env] = row
    assert.strictEqual(localUrlOf(yield* read(env)), expected)
  })

  it.effect("turns off traces with OTEL_TRACES_EXPORTER=none, and metrics too with OTEL_SDK_DISABLED", function* () {
    const all = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://h", OTEL_EXPORTER_OTLP_HEADERS: "a=all%20of,b=it" }
    const given = { ...defaults, "otlp.headers": { a: "all of", b: "it" } }
    const metrics = { ...given, "otlp.metrics": "http://h/v1/metrics" }
    assert.deepStrictEqual(plain(yield* read(all)), { ...metrics, "otlp.traces": "http://h/v1/traces" })
    assert.deepStrictEqual(plain(yield* read({ ...all, OTEL_TRACES_EXPORTER: "none" })), metrics)
    assert.deepStrictEqual(plain(yield* read({ ...all, OTEL_SDK_DISABLED: "true" })), given)
  })

  it.effect("keeps OTEL_RESOURCE_ATTRIBUTES, and generates an instance id if none is given", function* () {
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

  it.effect.each<readonly [env: Variables, sentence: string]>([
    [{ DATABASE_DEADLINE: "2500 millis" }, "DATABASE_DEADLINE must be longer than DATABASE_STATEMENT_TIMEOUT."],
    [{ DATABASE_STATEMENT_TIMEOUT: "5 seconds" }, "DATABASE_DEADLINE must be longer than DATABASE_STATEMENT_TIMEOUT."],
    [{ BYOK_KEYRING: "a", BYOK_KEYRING_FILE: "b" }, onlyOneKeyring],
    [{ BYOK_KEYRING: "a", BYOK_KEYRING_COMMAND: "b" }, onlyOneKeyring],
    [{ BYOK_KEYRING_FILE: "a", BYOK_KEYRING_COMMAND: "b" }, onlyOneKeyring],
    [{ BYOK_KEYRING_COMMAND_ENV: "A" }, "BYOK_KEYRING_COMMAND_ENV goes with BYOK_KEYRING_COMMAND only."],
    [
      { BYOK_KEYRING_COMMAND: "a", BYOK_KEYRING_COMMAND_ENV: "A,B" },
      "BYOK_KEYRING_COMMAND_ENV must be names of environment variables, separated by blanks."
    ],
    [{ BYOK_WEBHOOK_URL: "https://a" }, "BYOK_WEBHOOK_URL and BYOK_WEBHOOK_SECRET_FILE must be set together."],
    [{ BYOK_WEBHOOK_SECRET_FILE: "a" }, "BYOK_WEBHOOK_URL and BYOK_WEBHOOK_SECRET_FILE must be set together."],
    [{ TLS_CERT_FILE: "a" }, "TLS_CERT_FILE and TLS_KEY_FILE must be set together."],
    [{ TLS_KEY_FILE: "a", TLS_CERT_FILE: "" }, "TLS_CERT_FILE and TLS_KEY_FILE must be set together."],
    [{ BYOK_MANAGEMENT_PORT: "3000" }, "BYOK_MANAGEMENT_PORT and PORT must be different."],
    [{ HOST: "0.0.0.0", PORT: "81", BYOK_MANAGEMENT_PORT: "81" }, "BYOK_MANAGEMENT_PORT and PORT must be different."]
  ])("refuses %j, and says: %s", function* ([env, sentence]) {
    assert.strictEqual(yield* refusalOf(env), sentence)
  })

  it.effect.prop(
    "names a setting in each refusal, and shows no value (T4)",
    Object.fromEntries(Object.keys(settings).map((name) => [name, anyString])),
    function* (given) {
      const env = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, `canary${value}`]))
      const exit = yield* Effect.exit(read(env))
      assert(Exit.isFailure(exit), "no number and no duration begins with a canary")
      const error = Cause.squash(exit.cause)
      assert.instanceOf(error, InvalidSetting)
      assert.isTrue(Object.keys(settings).some((name) => error.message.startsWith(`${name} `)))
      assert.notInclude(inspect(exit, { depth: null }) + Cause.pretty(exit.cause) + String(error), "canary")
    }
  )

  it.effect("removes secrets from the process's environment, and leaves other settings", function* () {
    const given = {
      DATABASE_URL: "postgres://u:canary@localhost/d",
      BYOK_KEYRING: "canary",
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
    assert.deepInclude(plain(settings), {
      databaseUrl: given.DATABASE_URL,
      keyring: given.BYOK_KEYRING,
      dataDirectory: "kept"
    })
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

  it("knows exactly the settings in the table of docs/settings.md, with the same defaults", () => {
    const page = readFileSync(join(import.meta.dirname, "../../docs/settings.md"), "utf8")
    const rows = page.split("\n").filter((line) => line.startsWith("| `"))
    const cells = rows.map((row) => row.split("|").map((cell) => cell.trim().replaceAll("`", "")))
    const table = Object.fromEntries(cells.map(([, names = "", byDefault = ""]) => [names, byDefault]))
    assert.deepInclude(table, {
      "HOST, PORT": "127.0.0.1, 3000",
      MAX_CONNECTIONS: "1024",
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
      BYOK_DATA_DIR: ".byok",
      "LOG_LEVEL, LOG_FORMAT": "info, pretty"
    })
    assert.sameMembers(
      Object.keys(table).flatMap((names) => names.split(/, | or /)),
      [
        ...Object.keys(settings),
        "TLS_CERT_FILE",
        "TLS_KEY_FILE",
        "BYOK_WEBHOOK_URL",
        "BYOK_WEBHOOK_SECRET_FILE",
        "LOG_LEVEL",
        "LOG_FORMAT"
      ]
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

layer(GivenLive)("an unusable DATABASE_CA_FILE", (it) => {
  it.effect("keeps the service from starting if the file is missing, damaged or has no certificate", function* () {
    const file = join(yield* temporaryDirectory, "canary")
    const refused = refusalToStart((given) => ({ ...given, databaseCaFile: Option.some(file) }))
    const found = (what: string) => `DATABASE_CA_FILE must be a file of PEM certificates; found ${what}.`
    assert.strictEqual(yield* refused, "DATABASE_CA_FILE must be a readable file: no such file or directory (ENOENT).")
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
})

layer(GivenLive)("a usable DATABASE_CA_FILE", (it) => {
  it.effect("the service starts with several certificates and other text in DATABASE_CA_FILE", function* () {
    const file = join(yield* temporaryDirectory, "ca.pem")
    const [one, other] = ["one", "other"].map((name) => selfSignedCertificate(name).certificate)
    writeFileSync(file, `# One\n${one}\r\n# Other\r\n${other?.replaceAll("\n", "\r\n")}`)
    const settings = { ...(yield* Given), databaseCaFile: Option.some(file) }
    assert.isTrue(Exit.isSuccess(yield* Effect.exit(Layer.build(Byok.layerWith(settings)))))
  })
})
