import { Cause, Console, Context, Effect, Formatter, Layer, Logger, References, type Scope, Tracer } from "effect"
import { oneOf, refuse, settingOr, text } from "./Environment.ts"
import { readServiceResource } from "./OtlpSettings.ts"
import { makeConsole } from "./StandardError.ts"

/** The version and id of the instance that writes. */
type Writer = Readonly<Record<"version" | "instance", string>>

/** The ids of the span in which a line is logged; undefined without a tracer or span. */
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
    // Scalars need neither redaction nor a search for cycles, which make Effect's formatter three times slower.
    const hasOnlyScalars = isScalar(structured.message) && Object.values(structured.annotations).every(isScalar)
    return hasOnlyScalars ? JSON.stringify(entry) : Formatter.formatJson(entry)
  })

const logfmt = (writer: Writer) =>
  Logger.make((options) => {
    const added = Object.entries({ ...traceOf(options), ...writer }).map(([name, value]) => ` ${name}=${value}`)
    return Logger.formatLogFmt.log(options) + added.join("")
  })

type Options = Logger.Options<unknown>

const textOf = (part: unknown) => {
  if (typeof part === "string") return part
  return part instanceof Error ? `${part.name} ${part.message}` : Formatter.format(part)
}

/** The message and cause in one sentence, without stacks and annotations, which differ for the same cause. */
const sentenceOf = ({ cause, message }: Options) => {
  const sentence = (Array.isArray(message) ? message : [message]).map(textOf).join(" ").slice(0, 200)
  const failure = cause.reasons.length === 0 ? undefined : Cause.squash(cause)
  return failure instanceof Error ? `${sentence}: ${textOf(failure)}`.slice(0, 400) : sentence
}

/** For people: a warning is one sentence, and only errors have a stack. */
const pretty = () => {
  const logger = Logger.consolePretty({ formatDate: (date) => date.toISOString() })
  return Logger.make((options) => {
    const isSentence = options.logLevel === "Warn" && options.cause.reasons.length > 0
    return logger.log(isSentence ? { ...options, message: sentenceOf(options), cause: Cause.empty } : options)
  })
}

const formats = {
  pretty,
  logfmt: (writer: Writer) => Logger.withConsoleError(logfmt(writer)),
  json: (writer: Writer) => Logger.withConsoleError(json(writer))
}

/** For how many milliseconds one line stands for all lines with its cause. */
const interval = 1000

/** How many causes to distinguish at a time; further ones count as one, because every message may be different. */
const causeLimit = 50

/** How many request ids to name in a line about omitted lines, so that a client's report can be matched. */
const idLimit = 20

const isTrouble = ({ logLevel }: Options) => logLevel === "Warn" || logLevel === "Error" || logLevel === "Fatal"

/** Omitted lines of one cause in the current second. */
interface Omitted {
  readonly logLevel: Options["logLevel"]
  count: number
  /** The ids of their requests. */
  readonly ids: Set<string>
}

/** Makes a function that logs lines outside any request, until the scope closes. */
const makeBackgroundLog = (logger: Logger.Logger<unknown, void>) =>
  Effect.map(
    // Logs with a live fiber, which keeps the console of the other lines; an ended fiber would lose the console.
    Effect.provideService(Effect.forkScoped(Effect.never), Logger.LogToStderr, true),
    (fiber) => (logLevel: Options["logLevel"], message: string) =>
      logger.log({ logLevel, message, cause: Cause.empty, date: new Date(), fiber })
  )

/**
 * Limits warnings and errors to one line per cause and second. When the second is over, or the scope closes, another
 * line says how many were omitted, and the ids of their requests.
 */
export const deduplicateLogs = (
  logger: Logger.Logger<unknown, void>
): Effect.Effect<Logger.Logger<unknown, void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const causes = new Map<string, Omitted>()
    const log = yield* makeBackgroundLog(logger)
    /** Logs how many lines of a cause were omitted; forgets the cause if none were. */
    const report = (sentence: string, omitted: Omitted) => {
      if (omitted.count === 0) return void causes.delete(sentence)
      const ids = omitted.ids.size === 0 ? "" : `; request_id: ${Array.from(omitted.ids).join(", ")}`
      log(omitted.logLevel, `${sentence} (${omitted.count} more in the last second${ids})`)
      omitted.count = 0
      omitted.ids.clear()
    }
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => causes.forEach((omitted, sentence) => report(sentence, omitted)))
    )
    return Logger.make((options) => {
      if (!isTrouble(options)) return logger.log(options)
      const specific = sentenceOf(options)
      const sentence = causes.has(specific) || causes.size < causeLimit ? specific : "Other causes"
      const ongoing = causes.get(sentence)
      if (ongoing !== undefined) {
        const { request_id } = options.fiber.getRef(References.CurrentLogAnnotations)
        if (typeof request_id === "string" && ongoing.ids.size < idLimit) ongoing.ids.add(request_id)
        return void (ongoing.count += 1)
      }
      const omitted: Omitted = { logLevel: options.logLevel, count: 0, ids: new Set() }
      causes.set(sentence, omitted)
      // Ends after the first interval without omitted lines, in which `report` forgets the cause.
      const timer = setInterval(() => {
        report(sentence, omitted)
        if (causes.get(sentence) !== omitted) clearInterval(timer)
      }, interval).unref()
      logger.log(options)
    })
  })

const levels = ["Trace", "Debug", "Info", "Warn", "Error", "Fatal", "None"] as const

/** Logs to standard error, in the level and format of `LOG_LEVEL` and `LOG_FORMAT`. */
export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const levelName = yield* settingOr("LOG_LEVEL", text, "info")
    const level = levels.find((name) => name.toLowerCase() === levelName.toLowerCase())
    if (level === undefined) return yield* refuse(`LOG_LEVEL must be one of ${levels.join(", ").toLowerCase()}.`)
    const names = oneOf(["pretty", "logfmt", "json"], "pretty, logfmt or json")
    const format = yield* settingOr("LOG_FORMAT", names, "pretty")
    const { attributes, serviceVersion: version } = yield* readServiceResource
    const logger = formats[format]({ version, instance: attributes["service.instance.id"] })
    const console = yield* makeConsole((lines) => log("Warn", `${lines} lines are missing: they were not read in time`))
    const log = yield* Effect.provideService(makeBackgroundLog(logger), Console.Console, console)
    return Layer.mergeAll(
      Logger.layer([Effect.provideService(deduplicateLogs(logger), Console.Console, console)]),
      Layer.succeed(Console.Console, console),
      Layer.succeed(References.MinimumLogLevel, level),
      Layer.succeed(Logger.LogToStderr, true)
    )
  })
)
