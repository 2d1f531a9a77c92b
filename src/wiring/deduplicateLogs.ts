import { Cause, Effect, Formatter, Logger, References, type Scope } from "effect"

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
export const makeLogOfNoRequest = (logger: Logger.Logger<unknown, void>) =>
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
