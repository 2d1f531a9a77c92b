import { inspect } from "node:util"
import { Cause, Context, Effect, Exit, Layer, Logger, References, Tracer } from "effect"
import { WriteLog } from "../../../src/wiring/StandardError.ts"

export interface LogEntry {
  readonly level: string
  readonly request_id: unknown
  /** The entry in every format the service can log in, and as a careless program would print it. */
  readonly text: string
}

const print = (value: unknown) => inspect(value, { depth: 20, breakLength: Infinity })

const entryOf = (options: Logger.Options<unknown>): LogEntry => {
  const formats = [Logger.formatSimple, Logger.formatLogFmt, Logger.formatJson].map((format) => format.log(options))
  const annotations = options.fiber.getRef(References.CurrentLogAnnotations)
  return {
    level: options.logLevel,
    request_id: annotations["request_id"],
    text: [...formats, print(options.message), print(options.cause), print(annotations)].join("\n")
  }
}

class RecordedSpan extends Tracer.NativeSpan {
  override end(endTime: bigint, exit: Exit.Exit<unknown, unknown>) {
    super.end(endTime, exit)
    this.ended()
  }
  ended = () => {}
}

/** A tracer that hands over each span when it begins and when it has ended. */
export const tracerTo = (
  ended: (span: Tracer.NativeSpan) => void,
  began: (span: Tracer.NativeSpan) => void = () => {}
) =>
  Tracer.make({
    span: (options) => {
      const span = new RecordedSpan(options)
      span.ended = () => ended(span)
      began(span)
      return span
    }
  })

const spanText = ({ attributes, events, name, status }: Tracer.NativeSpan) => {
  const failure = status._tag === "Ended" && Exit.isFailure(status.exit) ? Cause.pretty(status.exit.cause) : ""
  return [name, print(attributes), print(events), failure].join("\n")
}

/** Everything that a service logs and traces, at every level. */
export class Recording extends Context.Service<
  Recording,
  {
    readonly logs: Array<LogEntry>
    /** What an exporter sends of each span: name, attributes, events and errors. */
    readonly spans: Array<string>
    /** Each span from its beginning: the answer to a request may arrive before the spans of its statements end. */
    readonly begun: Array<Tracer.NativeSpan>
    /** Everything recorded so far, as one text. */
    readonly all: Effect.Effect<string>
  }
>()("byok/test/Recording") {
  /** Replaces the loggers and the tracer of a service. */
  static readonly layer = Layer.unwrap(
    Effect.sync(() => {
      const logs: Array<LogEntry> = []
      const spans: Array<string> = []
      const begun: Array<Tracer.NativeSpan> = []
      const tracer = tracerTo(
        (span) => void spans.push(spanText(span)),
        (span) => void begun.push(span)
      )
      return Layer.mergeAll(
        Layer.succeed(this, {
          logs,
          spans,
          begun,
          all: Effect.sync(() => [...logs.map(({ text }) => text), ...spans].join("\n"))
        }),
        Logger.layer([Logger.make((options) => void logs.push(entryOf(options)))]),
        Layer.succeed(References.MinimumLogLevel, "All"),
        Layer.succeed(Tracer.Tracer, tracer)
      )
    })
  )
}

/** Replaces the loggers, and adds a line with level and message for each entry. */
export const logLines = (lines: Array<string>) =>
  Logger.layer([Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))])

/** Returns a layer that collects the writes of the log instead of writing them, and the writes. */
export const takeLog = () => {
  const writes: Array<string> = []
  const layer = Layer.succeed(WriteLog, (bytes) => {
    writes.push(bytes.toString())
    return bytes.length
  })
  return { writes, layer }
}
