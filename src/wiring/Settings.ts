import { ByteSize, Config, Duration, Effect, Option, Redacted, Schema, SchemaTransformation } from "effect"
import type { SecretCommand } from "../crypto/keyring/SecretCommand.ts"
import { isLoopback } from "../port/Links.ts"
import {
  address,
  decodedBy,
  httpUrl,
  type InvalidSetting,
  oneOf,
  refuse,
  secret,
  setting,
  settingOr,
  text,
  trueOrFalse,
  warnOfMisspelt
} from "./Environment.ts"
import { readOtlpSettings } from "./OtlpSettings.ts"

export { InvalidSetting } from "./Environment.ts"

/** A whole number of at most ten digits; refuses other notations. */
const whole = (minimum: number, maximum: number) =>
  decodedBy(
    Schema.String.check(Schema.isPattern(/^\d{1,10}$/)).pipe(
      Schema.decodeTo(Schema.Int.check(Schema.isBetween({ minimum, maximum })), SchemaTransformation.numberFromString)
    ),
    `a whole number from ${minimum} to ${maximum}`
  )

/** Reads a duration from `shortest` to an hour. */
const durationSetting = (name: string, fallback: Duration.Input, shortest: Duration.Input = "1 millis") => {
  const range = { minimum: Duration.fromInputUnsafe(shortest), maximum: Duration.hours(1) }
  const codec = Schema.DurationFromString.check(Schema.makeFilter((duration) => Duration.between(duration, range)))
  const kind = decodedBy(codec, `a duration such as "2500 millis" or "3 seconds"`)
  return settingOr(name, kind, Duration.fromInputUnsafe(fallback))
}

const mebibyte = 1024 * 1024

/** A quarter of the memory limit of the process, from 16 to 192 MiB; 192 MiB without a limit. In bytes. */
const defaultBudget = () => {
  const limit = process.constrainedMemory()
  return limit > 0 ? Math.min(192 * mebibyte, Math.max(16 * mebibyte, Math.floor(limit / 4))) : 192 * mebibyte
}

const memory = decodedBy(
  Schema.ByteSizeFromString.check(
    Schema.makeFilter((size) =>
      ByteSize.between(size, { minimum: ByteSize.mebibytes(16), maximum: ByteSize.gibibytes(64) })
    )
  ),
  `a size from "16 MiB" to "64 GiB"`
)

/** Refuses an empty URL, which would silently select the embedded database. */
const databaseUrl = Effect.suspend(() =>
  process.env["DATABASE_URL"] === ""
    ? refuse("DATABASE_URL must not be empty: unset it to use the embedded database.")
    : secret("DATABASE_URL", text)
)

const tls = Effect.gen(function* () {
  const [certificateFile, keyFile] = [yield* setting("TLS_CERT_FILE", text), yield* setting("TLS_KEY_FILE", text)]
  if (Option.isSome(certificateFile) !== Option.isSome(keyFile)) {
    return yield* refuse("TLS_CERT_FILE and TLS_KEY_FILE must be set together.")
  }
  return Option.all({ certificateFile, keyFile })
})

const management = Effect.gen(function* () {
  const host = yield* settingOr("BYOK_MANAGEMENT_HOST", address, "127.0.0.1")
  return Option.map(yield* setting("BYOK_MANAGEMENT_PORT", whole(0, 65535)), (port) => ({ host, port }))
})

const webhook = Effect.gen(function* () {
  const url = yield* setting("BYOK_WEBHOOK_URL", httpUrl)
  const secretFile = yield* setting("BYOK_WEBHOOK_SECRET_FILE", text)
  if (Option.isSome(url) !== Option.isSome(secretFile)) {
    return yield* refuse("BYOK_WEBHOOK_URL and BYOK_WEBHOOK_SECRET_FILE must be set together.")
  }
  return Option.all({ url, secretFile })
})

const database = Effect.all({
  poolSize: settingOr("DATABASE_POOL_SIZE", whole(1, 1000), 10),
  connectTimeout: durationSetting("DATABASE_CONNECT_TIMEOUT", "1 second"),
  statementTimeout: durationSetting("DATABASE_STATEMENT_TIMEOUT", "2500 millis"),
  /** How long a request may wait for the database in total. */
  deadline: durationSetting("DATABASE_DEADLINE", "3 seconds"),
  /** The age from which a connection is replaced before its next use. */
  maxAge: durationSetting("DATABASE_CONNECTION_MAX_AGE", "10 minutes"),
  /** Maximum requests of one account, for reads or for writes, that wait or are in progress. */
  queue: settingOr("DATABASE_QUEUE", whole(1, 1_000_000), 2000),
  /** Whether a transaction pooler such as PgBouncer is between the service and the database. */
  pooler: settingOr("DATABASE_POOLER", trueOrFalse, false)
})

/** A program and its arguments. Without a shell, quotes would be a part of the arguments, so they need JSON. */
const commandLine = decodedBy(
  Schema.String.check(Schema.makeFilter((line) => wordsOf(line) !== undefined)),
  'a program and its arguments, separated by blanks and without quotes, or a JSON array of them such as ["cat", "my file"]'
)

const isWords = Schema.is(Schema.NonEmptyArray(Schema.NonEmptyString))

const wordsOf = (line: string) => {
  if (!line.trimStart().startsWith("[")) {
    const words = line.split(/\s+/).filter((word) => word !== "")
    return isWords(words) && !/["']/.test(line) ? words : undefined
  }
  try {
    const words: unknown = JSON.parse(line)
    return isWords(words) ? words : undefined
  } catch {
    return undefined
  }
}

const variableNames = decodedBy(
  Schema.String.check(Schema.isPattern(/^\s*[A-Za-z_]\w*(\s+[A-Za-z_]\w*)*\s*$/)),
  "names of environment variables, separated by blanks"
)

/** The command that prints the keyring, with PATH, HOME and the variables that a setting names. */
const keyringCommand = Effect.gen(function* () {
  const line = yield* setting("BYOK_KEYRING_COMMAND", commandLine)
  const names = yield* setting("BYOK_KEYRING_COMMAND_ENV", variableNames)
  const words = Option.getOrUndefined(Option.map(line, wordsOf))
  if (words === undefined) {
    return Option.isNone(names)
      ? Option.none()
      : yield* refuse("BYOK_KEYRING_COMMAND_ENV goes with BYOK_KEYRING_COMMAND only.")
  }
  const env: Record<string, string> = {}
  for (const name of [
    "PATH",
    "HOME",
    ...Option.match(names, { onNone: () => [], onSome: (list) => list.trim().split(/\s+/) })
  ]) {
    const value = yield* Config.option(Config.String(name)).pipe(Effect.orElseSucceed(() => Option.none()))
    if (Option.isSome(value)) env[name] = value.value
  }
  const [program, ...args] = words
  return Option.some(Redacted.make<SecretCommand>({ program, args, env }))
})

const allSettings = Effect.all({
  host: settingOr("HOST", address, "127.0.0.1"),
  port: settingOr("PORT", whole(0, 65535), 3000),
  /** The URL at which browsers reach the service, without a slash at its end. */
  publicUrl: Effect.map(
    setting("PUBLIC_URL", httpUrl),
    Option.map(({ origin, pathname }) => origin + pathname.replace(/\/+$/, ""))
  ),
  /** Whether several instances may listen on the port. */
  reusePort: settingOr("BYOK_REUSE_PORT", trueOrFalse, false),
  /** The server's certificate and its key; none for plain HTTP. */
  tls,
  /** How many connections may be open at a time; the server drops further ones. */
  maxConnections: settingOr("MAX_CONNECTIONS", whole(1, 1_000_000), 1_024),
  /** How long an idle connection stays open. */
  keepAliveTimeout: durationSetting("KEEP_ALIVE_TIMEOUT", "5 seconds"),
  /** How long a client may read nothing of its answer. */
  sendTimeout: durationSetting("SEND_TIMEOUT", "10 seconds"),
  /** How long to go on serving after a signal to stop, while not ready. */
  drainDelay: durationSetting("DRAIN_DELAY", "0 seconds", "0 millis"),
  accessLog: settingOr("ACCESS_LOG", trueOrFalse, false),
  /** How many bytes of memory requests, and cached pools and tokens, may use together. */
  memoryBudget: Effect.map(setting("MEMORY_BUDGET", memory), (size) =>
    Option.match(size, { onNone: defaultBudget, onSome: ByteSize.toNumberUnsafe })
  ),
  /** Limits of a pool: the credentials of one provider in a workspace. */
  poolLimits: Effect.all({
    credentials: settingOr("MAX_CREDENTIALS", whole(1, 1000), 256),
    bytes: settingOr("MAX_POOL_BYTES", whole(1_048_576, 4_194_304), 4_194_304)
  }),
  database,
  /** None for the embedded database. */
  databaseUrl,
  databaseCaFile: setting("DATABASE_CA_FILE", text),
  /** Whether to migrate a database whose schema is behind; `byok migrate` does so anyway. */
  migrate: settingOr("BYOK_MIGRATE", oneOf(["auto", "check"], "auto or check"), "auto"),
  dataDirectory: settingOr("BYOK_DATA_DIR", text, ".byok"),
  keyring: secret("BYOK_KEYRING", text),
  keyringFile: setting("BYOK_KEYRING_FILE", text),
  keyringCommand,
  otlp: readOtlpSettings,
  /** How often to send metrics to the collector. */
  metricsInterval: Effect.map(settingOr("OTEL_METRIC_EXPORT_INTERVAL", whole(1, 9_999_999), 60_000), Duration.millis),
  /** The address for metrics, health details and keyring reload; none for no management port. */
  management,
  /** The URL to which events are posted, and the file with the secrets that sign them; none for no webhook. */
  webhook,
  /** Whether routes never hand out a key that can sign tokens, only its tokens. */
  tokensOnly: settingOr("TOKENS_ONLY", trueOrFalse, false),
  /** The Unix socket for gateways; none for no socket. */
  gatewaySocket: setting("BYOK_GATEWAY_SOCKET", text),
  /** The Unix socket for proxies; none for no socket. */
  forwardSocket: setting("BYOK_FORWARD_SOCKET", text)
})

export type TlsFiles = Option.Option.Value<Settings["tls"]>

export type Settings = Readonly<Effect.Success<typeof allSettings>>

/** Whether a service that listens on the address is reached at every address of the machine. */
const isWildcard = (host: string) => /^(0\.0\.0\.0|::)$/.test(host)

/** The URL at which browsers on this machine reach the service. If PORT is 0, pass the port that the system chose. */
export const localUrlOf = ({ host, port, tls }: Settings, actualPort = port): string => {
  const name = isWildcard(host) ? "localhost" : host
  return `http${Option.isSome(tls) ? "s" : ""}://${name.includes(":") ? `[${name}]` : name}:${actualPort}`
}

/** PUBLIC_URL, or the local URL if the service listens on loopback; otherwise undefined: the URL is not known. */
export const publicUrlOf = (settings: Settings): string | undefined =>
  Option.getOrElse(settings.publicUrl, () => (isLoopback(settings.host) ? localUrlOf(settings) : undefined))

/** Reads and checks every setting except those of the log, and removes secrets from the environment. */
export const readSettings: Effect.Effect<Settings, InvalidSetting> = Effect.gen(function* () {
  const settings = yield* allSettings
  yield* warnOfMisspelt
  const { database, keyring, keyringCommand, keyringFile } = settings
  if (!Duration.isGreaterThan(database.deadline, database.statementTimeout)) {
    return yield* refuse("DATABASE_DEADLINE must be longer than DATABASE_STATEMENT_TIMEOUT.")
  }
  const { host, management, port } = settings
  const overlapsHost = (other: string) => other === host || isWildcard(host) || isWildcard(other)
  if (Option.exists(management, (other) => port !== 0 && other.port === port && overlapsHost(other.host))) {
    return yield* refuse("BYOK_MANAGEMENT_PORT and PORT must be different.")
  }
  if ([keyring, keyringFile, keyringCommand].filter((source) => Option.isSome<unknown>(source)).length > 1) {
    return yield* refuse("Only one of BYOK_KEYRING_FILE, BYOK_KEYRING_COMMAND and BYOK_KEYRING may be set.")
  }
  return settings
})
