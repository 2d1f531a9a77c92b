import { Cause, Option } from "effect"
import type { RecordedSpan } from "./RecordedSpan.ts"

const kinds = { internal: 1, server: 2, client: 3, producer: 4, consumer: 5 } as const

/** What `status.code` says of a failure; a success leaves it out. */
const failed = 2

const valueJson = (value: unknown): string => {
  switch (typeof value) {
    case "boolean":
      return `{"boolValue":${value}}`
    case "number":
      return Number.isSafeInteger(value) ? `{"intValue":${value}}` : `{"doubleValue":${JSON.stringify(String(value))}}`
    case "string":
      return `{"stringValue":${JSON.stringify(value)}}`
    default:
      return Array.isArray(value)
        ? `{"arrayValue":{"values":[${value.map(valueJson).join()}]}}`
        : `{"stringValue":${JSON.stringify(String(value))}}`
  }
}

const attributesJson = (attributes: Iterable<readonly [string, unknown]>) => {
  let json = ""
  for (const [key, value] of attributes) {
    json += `${json === "" ? "" : ","}{"key":${JSON.stringify(key)},"value":${valueJson(value)}}`
  }
  return `[${json}]`
}

const isFailure = ({ status }: RecordedSpan) =>
  status._tag === "Ended" && status.exit._tag === "Failure" && !Cause.hasInterruptsOnly(status.exit.cause)

/** Neither the message of a failure nor its stack is in it: only `error.type`, if whoever ended the span has set it. */
const spanJson = (span: RecordedSpan): string => {
  const { status } = span
  const end = status._tag === "Ended" ? status.endTime : status.startTime
  const parent = Option.isSome(span.parent) ? `"parentSpanId":"${span.parent.value.spanId}",` : ""
  const links = span.links.map(
    ({ attributes, span: { spanId, traceId } }) =>
      `{"traceId":"${traceId.padStart(32, "0")}","spanId":"${spanId}","attributes":${attributesJson(Object.entries(attributes))}}`
  )
  const events = span.events.map(({ name, time }) => `{"name":${JSON.stringify(name)},"timeUnixNano":"${time}"}`)
  return (
    `{"traceId":"${span.traceId}","spanId":"${span.spanId}",${parent}"name":${JSON.stringify(span.name)},` +
    `"kind":${kinds[span.kind]},"startTimeUnixNano":"${status.startTime}","endTimeUnixNano":"${end}",` +
    `"attributes":${attributesJson(span.attributes)}` +
    (events.length === 0 ? "" : `,"events":[${events.join()}]`) +
    (links.length === 0 ? "" : `,"links":[${links.join()}]`) +
    (isFailure(span) ? `,"status":{"code":${failed}}}` : "}")
  )
}

/** Makes what writes a batch of spans as OTLP has it, in JSON. */
export const makeSpansJson = (resource: Readonly<Record<string, string>>) => {
  const head = `{"resourceSpans":[{"resource":{"attributes":${attributesJson(Object.entries(resource))}},"scopeSpans":[{"scope":{"name":"byok"},"spans":[`
  return (spans: ReadonlyArray<RecordedSpan>): string => `${head}${spans.map(spanJson).join()}]}]}]}`
}
