import { Console, Context, Effect, Formatter, Layer, Logger, References, Tracer } from "effect"
import { deduplicateLogs, makeLogOfNoRequest } from "./deduplicateLogs.ts"
import { oneOf, refuse, settingOr, text } from "./Environment.ts"
import { readServiceResource } from "./OtlpSettings.ts"
import { makeConsole } from "./StandardError.ts"

/** Which instance of the service writes. */
type Writer = Readonly<Record<"version" | "instance", string>>

/** The trace that a line belongs to, if its spans are made to be sent. */
const traceOf = ({ fiber }: Logger.Options<unknown>) => {
  if (!fiber.getRef(References.TracerEnabled) || fiber.getRef(Tracer.Tracer) === Tracer.nativeTracer) return undefined
  const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
  return span === undefined ? undefined : { trace_id: span.traceId, span_id: span.spanId }
}

const isScalar = (value: unknown) =>
  typeof value === "string" || typeof value === "number" || typeof value === "boolean"

const json = (writer: Writer) =>
  Logger.make((options) => {
    const structured = Logger.formatStructured.log(options)
    const entry = { ...structured, ...traceOf(options), ...writer }
    // Scalars neither hide anything nor refer back, which Effect looks for at three times the cost.
    const isPlain = isScalar(structured.message) && Object.values(structured.annotations).every(isScalar)
    return isPlain ? JSON.stringify(entry) : Formatter.formatJson(entry)
  })

const logfmt = (writer: Writer) =>
  Logger.make((options) => {
    const added = Object.entries({ ...traceOf(options), ...writer }).map(([name, value]) => ` ${name}=${value}`)
    return Logger.formatLogFmt.log(options) + added.join("")
  })

const formats = {
  pretty: () => Logger.consolePretty({ formatDate: (date) => date.toISOString() }),
  logfmt: (writer: Writer) => Logger.withConsoleError(logfmt(writer)),
  json: (writer: Writer) => Logger.withConsoleError(json(writer))
}

const levels = ["Trace", "Debug", "Info", "Warn", "Error", "Fatal", "None"] as const

/** Logs go to standard error, in the level and format of `LOG_LEVEL` and `LOG_FORMAT`. */
export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const given = yield* settingOr("LOG_LEVEL", text, "info")
    const level = levels.find((name) => name.toLowerCase() === given.toLowerCase())
    if (level === undefined) return yield* refuse(`LOG_LEVEL must be one of ${levels.join(", ").toLowerCase()}.`)
    const names = oneOf(["pretty", "logfmt", "json"], "pretty, logfmt or json")
    const format = yield* settingOr("LOG_FORMAT", names, "pretty")
    const { attributes, serviceVersion: version } = yield* readServiceResource
    const logger = formats[format]({ version, instance: attributes["service.instance.id"] })
    const console = yield* makeConsole((lines) => log("Warn", `${lines} lines are missing: they were not read in time`))
    const log = yield* Effect.provideService(makeLogOfNoRequest(logger), Console.Console, console)
    return Layer.mergeAll(
      Logger.layer([Effect.provideService(deduplicateLogs(logger), Console.Console, console)]),
      Layer.succeed(Console.Console, console),
      Layer.succeed(References.MinimumLogLevel, level),
      Layer.succeed(Logger.LogToStderr, true)
    )
  })
)
