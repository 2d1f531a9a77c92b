import { Cause, Console, Context, Effect, Formatter, Layer, Logger, References, type Scope, Tracer } from "effect"
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

/** Milliseconds for which one line stands for all that have the same cause. */
const interval = 1000

/** How many causes are told apart at a time: a message may hold what differs each time. */
const mostCauses = 50

/** How many requests the line about those left out names: a client may have the id of any. */
const mostIds = 20

type Options = Logger.Options<unknown>

const isTrouble = ({ logLevel }: Options) => logLevel === "Warn" || logLevel === "Error" || logLevel === "Fatal"

const partOf = (part: unknown) => {
  if (typeof part === "string") return part
  return part instanceof Error ? `${part.name} ${part.message}` : Formatter.format(part)
}

/** What is said and why, in one sentence: neither stacks nor annotations tell causes apart. */
const sentenceOf = ({ cause, message }: Options) => {
  const said = (Array.isArray(message) ? message : [message]).map(partOf).join(" ").slice(0, 200)
  const failure = cause.reasons.length === 0 ? undefined : Cause.squash(cause)
  return failure instanceof Error ? `${said}: ${partOf(failure)}`.slice(0, 400) : said
}

/** Of one cause in its current second. */
interface Counted {
  readonly logLevel: Options["logLevel"]
  more: number
  /** The requests that they were about. */
  readonly ids: Set<string>
}

/** Writes a line that belongs to no request. */
const makeLogOfNoRequest = (logger: Logger.Logger<unknown, void>) =>
  Effect.map(
    // With the output of all other lines, which a fiber that has ended would have lost.
    Effect.provideService(Effect.forkScoped(Effect.never), Logger.LogToStderr, true),
    (fiber) => (logLevel: Options["logLevel"], message: string) =>
      logger.log({ logLevel, message, cause: Cause.empty, date: new Date(), fiber })
  )

/**
 * Limits warnings and errors to one line for each cause and second, whatever the fault and however many requests meet
 * it. The number of those left out, and the ids of their requests, follow when the second is over, or when the service
 * stops.
 */
export const deduplicateLogs = (
  logger: Logger.Logger<unknown, void>
): Effect.Effect<Logger.Logger<unknown, void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const causes = new Map<string, Counted>()
    const log = yield* makeLogOfNoRequest(logger)
    const report = (sentence: string, counted: Counted) => {
      if (counted.more === 0) return void causes.delete(sentence)
      const ids = counted.ids.size === 0 ? "" : `; request_id: ${Array.from(counted.ids).join(", ")}`
      log(counted.logLevel, `${sentence} (${counted.more} more in the last second${ids})`)
      counted.more = 0
      counted.ids.clear()
    }
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => causes.forEach((counted, sentence) => report(sentence, counted)))
    )
    return Logger.make((options) => {
      if (!isTrouble(options)) return logger.log(options)
      const own = sentenceOf(options)
      const sentence = causes.has(own) || causes.size < mostCauses ? own : "Other causes"
      const known = causes.get(sentence)
      if (known !== undefined) {
        const { request_id } = options.fiber.getRef(References.CurrentLogAnnotations)
        if (typeof request_id === "string" && known.ids.size < mostIds) known.ids.add(request_id)
        return void (known.more += 1)
      }
      const counted: Counted = { logLevel: options.logLevel, more: 0, ids: new Set() }
      causes.set(sentence, counted)
      const timer = setInterval(() => {
        report(sentence, counted)
        if (causes.get(sentence) !== counted) clearInterval(timer)
      }, interval).unref()
      logger.log(options)
    })
  })

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
