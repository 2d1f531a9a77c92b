import { Cause, Effect, Formatter, Logger, type Scope } from "effect"

/** Milliseconds for which one line stands for all that have the same cause. */
const interval = 1000

/** How many causes are told apart at a time: a message may hold what differs each time. */
const mostCauses = 50

type Options = Logger.Options<unknown>

const isTrouble = ({ logLevel }: Options) => logLevel === "Warn" || logLevel === "Error" || logLevel === "Fatal"

const partOf = (part: unknown) => {
  if (typeof part === "string") return part
  return part instanceof Error ? `${part.name} ${part.message}` : Formatter.format(part)
}

const textOf = (message: unknown) => (Array.isArray(message) ? message : [message]).map(partOf).join(" ").slice(0, 200)

/** What is said and why, in one sentence: neither stacks nor annotations tell causes apart. */
const sentenceOf = ({ cause, message }: Options) => {
  const failure = cause.reasons.length === 0 ? undefined : Cause.squash(cause)
  const why = failure instanceof Error ? `: ${failure.name} ${failure.message}` : ""
  return `${textOf(message)}${why}`.slice(0, 400)
}

interface Window {
  readonly logLevel: Options["logLevel"]
  more: number
}

/**
 * Limits warnings and errors to one line for each cause and second, whatever the fault and however many requests meet
 * it. The number of those left out follows when the second is over, or when the service stops.
 */
export const deduplicateLogs = (
  logger: Logger.Logger<unknown, void>
): Effect.Effect<Logger.Logger<unknown, void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const windows = new Map<string, Window>()
    /** Of no request: lines about several have no id. */
    const fiber = yield* Effect.forkDetach(Effect.void)
    const report = (sentence: string, { logLevel, more }: Window) => {
      if (more === 0) return
      const message = `${sentence} (${more} more in the last second)`
      logger.log({ logLevel, message, cause: Cause.empty, date: new Date(), fiber })
    }
    const open = (sentence: string, window: Window) => {
      windows.set(sentence, window)
      setTimeout(() => {
        if (!windows.delete(sentence)) return
        report(sentence, window)
        if (window.more > 0) open(sentence, { ...window, more: 0 })
      }, interval).unref()
    }
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        windows.forEach((window, sentence) => report(sentence, window))
        windows.clear()
      })
    )
    return Logger.make((options) => {
      if (!isTrouble(options)) return logger.log(options)
      const own = sentenceOf(options)
      const sentence = windows.has(own) || windows.size < mostCauses ? own : "Other causes"
      const window = windows.get(sentence)
      if (window !== undefined) {
        window.more += 1
        return
      }
      open(sentence, { logLevel: options.logLevel, more: 0 })
      logger.log(options)
    })
  })
