import { Config, Duration, Effect, Option, type Redacted, Schema, SchemaTransformation } from "effect"
import { isKekId } from "../domain/Identifiers.ts"
import type { DatabaseSettings } from "../sql/connection/Database.ts"
import { InvalidSetting, optionalSetting as optional, secretSetting, settingOr } from "./Environment.ts"
import { type OtlpSettings, readOtlpSettings } from "./OtlpSettings.ts"

export { InvalidSetting } from "./Environment.ts"

/** The server's own certificate and its key. */
export interface TlsFiles {
  readonly certificateFile: string
  readonly keyFile: string
}

export interface Settings {
  readonly host: string
  readonly port: number
  /** Whether other instances listen on the same port. */
  readonly reusePort: boolean
  /** None for plain HTTP. */
  readonly tls: Option.Option<TlsFiles>
  /** How many connections stay open at a time; further ones are dropped. */
  readonly maxConnections: number
  /** When an idle connection is closed. */
  readonly keepAliveTimeout: Duration.Duration
  /** How long a client may take to read an answer. */
  readonly sendTimeout: Duration.Duration
  /** How long to go on serving, although not ready, once the service is asked to stop. */
  readonly drainDelay: Duration.Duration
  /** Whether each request is a line in the log. */
  readonly accessLog: boolean
  readonly database: DatabaseSettings
  /** None for the embedded database. */
  readonly databaseUrl: Option.Option<Redacted.Redacted>
  readonly databaseCaFile: Option.Option<string>
  /** Whether to migrate a database whose schema is behind; `byok migrate` does so anyway. */
  readonly migrate: "auto" | "check"
  readonly dataDirectory: string
  readonly keyring: Option.Option<Redacted.Redacted>
  readonly keyringFile: Option.Option<string>
  /** Keys on a PKCS#11 token; the first one seals. */
  readonly pkcs11: {
    readonly module: Option.Option<string>
    readonly token: Option.Option<string>
    readonly pin: Option.Option<Redacted.Redacted>
    readonly pinFile: Option.Option<string>
    readonly keys: Option.Option<ReadonlyArray<string>>
    readonly deadline: Duration.Duration
  }
  readonly otlp: OtlpSettings
  /** How often metrics are sent to the collector. */
  readonly metricsInterval: Duration.Duration
  /** Where operators reach metrics, details of health and the reload of the keyring; none for nowhere. */
  readonly management: Option.Option<{ readonly host: string; readonly port: number }>
}

/** Whether the settings name a token, even incompletely. */
export const namesToken = ({ pkcs11: { keys, module, pin, pinFile, token } }: Settings): boolean =>
  [keys, module, pin, pinFile, token].some((given) => Option.isSome<unknown>(given))

const wholeSetting = (name: string, low: number, high: number) => {
  const codec = Schema.String.check(Schema.isPattern(/^\d{1,7}$/)).pipe(
    Schema.decodeTo(
      Schema.Int.check(Schema.isBetween({ minimum: low, maximum: high })),
      SchemaTransformation.numberFromString
    )
  )
  return optional(name, Config.schema(codec, name), `a whole number from ${low} to ${high}`)
}

const whole = (name: string, low: number, high: number, fallback: number) =>
  Effect.map(
    wholeSetting(name, low, high),
    Option.getOrElse(() => fallback)
  )

const text = (name: string) => optional(name, Config.NonEmptyString(name), "a non-empty string")

const secret = (name: string) => secretSetting(name, Config.NonEmptyString(name), "a non-empty string")

/** An empty secret must not silently select the embedded database. */
const databaseUrl = Effect.suspend(() =>
  process.env["DATABASE_URL"] === ""
    ? Effect.fail(
        new InvalidSetting({ message: "DATABASE_URL must not be empty: unset it to use the embedded database." })
      )
    : secret("DATABASE_URL")
)

const duration = (name: string, fallback: Duration.Input, minimum: Duration.Input = "1 millis") => {
  const inRange = Schema.makeFilter((given: Duration.Duration) =>
    Duration.between(given, { minimum: Duration.fromInputUnsafe(minimum), maximum: Duration.hours(1) })
  )
  const codec = Config.schema(Schema.DurationFromString.check(inRange), name)
  const expected = `a duration such as "2500 millis" or "3 seconds"`
  return settingOr(name, codec, Duration.fromInputUnsafe(fallback), expected)
}

const database = Effect.all({
  poolSize: whole("DATABASE_POOL_SIZE", 1, 1000, 10),
  connectTimeout: duration("DATABASE_CONNECT_TIMEOUT", "1 second"),
  statementTimeout: duration("DATABASE_STATEMENT_TIMEOUT", "2500 millis"),
  deadline: duration("DATABASE_DEADLINE", "3 seconds"),
  maxAge: duration("DATABASE_CONNECTION_MAX_AGE", "10 minutes"),
  queue: whole("DATABASE_QUEUE", 1, 1_000_000, 2000),
  batching: settingOr("DATABASE_BATCHING", Config.Boolean("DATABASE_BATCHING"), true, "true or false"),
  pooler: settingOr("DATABASE_POOLER", Config.Boolean("DATABASE_POOLER"), false, "true or false")
})

const kekIds = (name: string) => {
  const usable = Schema.makeFilter((given: string) => {
    const ids = given.split(",")
    return ids.every(isKekId) && new Set(ids).size === ids.length
  })
  const codec = Schema.String.check(usable)
  const expected = "distinct key ids, separated by commas"
  return Effect.map(
    optional(name, Config.schema(codec, name), expected),
    Option.map((given) => given.split(","))
  )
}

const pkcs11 = Effect.all({
  module: text("BYOK_PKCS11_MODULE"),
  token: text("BYOK_PKCS11_TOKEN"),
  pin: secret("BYOK_PKCS11_PIN"),
  pinFile: text("BYOK_PKCS11_PIN_FILE"),
  keys: kekIds("BYOK_PKCS11_KEYS"),
  deadline: duration("BYOK_PKCS11_DEADLINE", "2 seconds")
})

const management = Effect.gen(function* () {
  const host = yield* settingOr(
    "BYOK_MANAGEMENT_HOST",
    Config.NonEmptyString("BYOK_MANAGEMENT_HOST"),
    "127.0.0.1",
    "a name or address to listen on"
  )
  return Option.map(yield* wholeSetting("BYOK_MANAGEMENT_PORT", 0, 65535), (port) => ({ host, port }))
})

const tls = Effect.gen(function* () {
  const [certificateFile, keyFile] = [yield* text("TLS_CERT_FILE"), yield* text("TLS_KEY_FILE")]
  if (Option.isSome(certificateFile) !== Option.isSome(keyFile)) {
    return yield* new InvalidSetting({ message: "TLS_CERT_FILE and TLS_KEY_FILE must be set together." })
  }
  return Option.all({ certificateFile, keyFile })
})

/** Settings of earlier versions, and what to do instead. A deployment that still relies on one must not start without it. */
const removedSettings: Readonly<Record<string, string>> = {
  BYOK_PROCESSES: "run more instances instead, on other machines or on one port with BYOK_REUSE_PORT=true"
}

const refuseRemoved = Effect.forEach(
  Object.entries(removedSettings),
  ([name, instead]) =>
    Effect.flatMap(text(name), (given) =>
      Option.isNone(given)
        ? Effect.void
        : Effect.fail(new InvalidSetting({ message: `${name} is no longer a setting: ${instead}.` }))
    ),
  { discard: true }
)

/** Reads every setting except those of the log, and removes secrets from the environment. */
export const readSettings: Effect.Effect<Settings, InvalidSetting> = Effect.gen(function* () {
  yield* refuseRemoved
  const settings = yield* Effect.all({
    host: settingOr("HOST", Config.NonEmptyString("HOST"), "127.0.0.1", "a name or address to listen on"),
    port: whole("PORT", 0, 65535, 3000),
    reusePort: settingOr("BYOK_REUSE_PORT", Config.Boolean("BYOK_REUSE_PORT"), false, "true or false"),
    tls,
    maxConnections: whole("MAX_CONNECTIONS", 1, 1_000_000, 10_000),
    keepAliveTimeout: duration("KEEP_ALIVE_TIMEOUT", "5 seconds"),
    sendTimeout: duration("SEND_TIMEOUT", "10 seconds"),
    drainDelay: duration("DRAIN_DELAY", "0 seconds", "0 millis"),
    accessLog: settingOr("ACCESS_LOG", Config.Boolean("ACCESS_LOG"), false, "true or false"),
    database,
    databaseUrl,
    databaseCaFile: text("DATABASE_CA_FILE"),
    migrate: settingOr("BYOK_MIGRATE", Config.Literals(["auto", "check"], "BYOK_MIGRATE"), "auto", "auto or check"),
    dataDirectory: settingOr("BYOK_DATA_DIR", Config.NonEmptyString("BYOK_DATA_DIR"), ".byok", "a directory"),
    keyring: secret("BYOK_KEYRING"),
    keyringFile: text("BYOK_KEYRING_FILE"),
    pkcs11,
    otlp: readOtlpSettings,
    metricsInterval: Effect.map(whole("OTEL_METRIC_EXPORT_INTERVAL", 1, 9_999_999, 60_000), Duration.millis),
    management
  })
  const { deadline, statementTimeout } = settings.database
  if (!Duration.isGreaterThan(deadline, statementTimeout)) {
    const message = "DATABASE_DEADLINE must be longer than DATABASE_STATEMENT_TIMEOUT."
    return yield* new InvalidSetting({ message })
  }
  if (Option.isSome(settings.keyring) && Option.isSome(settings.keyringFile)) {
    return yield* new InvalidSetting({ message: "BYOK_KEYRING and BYOK_KEYRING_FILE must not both be set." })
  }
  if (Option.isSome(settings.pkcs11.pin) && Option.isSome(settings.pkcs11.pinFile)) {
    return yield* new InvalidSetting({ message: "BYOK_PKCS11_PIN and BYOK_PKCS11_PIN_FILE must not both be set." })
  }
  return settings
})
