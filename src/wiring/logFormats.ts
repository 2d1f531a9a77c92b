import { Context, Formatter, Logger, References, Tracer } from "effect"

/** Which process of the service writes. */
export interface Writer {
  readonly version: string
  readonly instance: string
}

/** The trace that a line belongs to, if its spans are made to be sent. */
const traceOf = ({ fiber }: Logger.Options<unknown>) => {
  if (!fiber.getRef(References.TracerEnabled) || fiber.getRef(Tracer.Tracer) === Tracer.nativeTracer) return undefined
  const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
  return span === undefined ? undefined : { trace_id: span.traceId, span_id: span.spanId }
}

const json = (writer: Writer) =>
  Logger.make((options) =>
    Formatter.formatJson({ ...Logger.formatStructured.log(options), ...traceOf(options), ...writer })
  )

const logfmt = ({ instance, version }: Writer) =>
  Logger.make((options) => {
    const trace = traceOf(options)
    const ids = trace === undefined ? "" : ` trace_id=${trace.trace_id} span_id=${trace.span_id}`
    return `${Logger.formatLogFmt.log(options)}${ids} version=${version} instance=${instance}`
  })

/** The formats of `LOG_FORMAT`. */
export const logFormats = {
  pretty: () => Logger.consolePretty({ formatDate: (date) => date.toISOString() }),
  logfmt: (writer: Writer) => Logger.withConsoleError(logfmt(writer)),
  json: (writer: Writer) => Logger.withConsoleError(json(writer))
}
