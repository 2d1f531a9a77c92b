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
      return Number.isSafeInteger(value)
        ? `{"intValue":${value}}`
        : `{"doubleValue":${Number.isFinite(value) ? value : `"${value}"`}}`
    case "string":
      return `{"stringValue":${JSON.stringify(value)}}`
    default:
      return Array.isArray(value)
        ? `{"arrayValue":{"values":[${value.map(valueJson).join()}]}}`
        : `{"stringValue":${JSON.stringify(String(value))}}`
  }
}

/** Names come from the code, so there are few of them. */
const names = new Map<string, string>()

const nameJson = (name: string) => {
  const known = names.get(name)
  if (known !== undefined) return known
  const json = JSON.stringify(name)
  if (names.size < 1000) names.set(name, json)
  return json
}

const attributesJson = (attributes: Iterable<readonly [string, unknown]>) => {
  let json = ""
  for (const [key, value] of attributes) {
    json += `${json === "" ? "" : ","}{"key":${nameJson(key)},"value":${valueJson(value)}}`
  }
  return `[${json}]`
}

const isFailure = ({ status }: RecordedSpan) =>
  status._tag === "Ended" && status.exit._tag === "Failure" && !Cause.hasInterruptsOnly(status.exit.cause)

/** Neither the message of a failure nor its stack is in it: only `error.type`, if whoever ended the span has set it. */
export const spanJson = (span: RecordedSpan): string => {
  const { status } = span
  const end = status._tag === "Ended" ? status.endTime : status.startTime
  const parent = Option.isSome(span.parent) ? `"parentSpanId":"${span.parent.value.spanId}",` : ""
  const links = span.links.map(({ attributes, span: { spanId, traceId } }) => {
    const entries = Object.entries(attributes)
    const about = entries.length === 0 ? "" : `,"attributes":${attributesJson(entries)}`
    return `{"traceId":"${traceId.padStart(32, "0")}","spanId":"${spanId}"${about}}`
  })
  const events = span.events.map(({ name, time }) => `{"name":${nameJson(name)},"timeUnixNano":"${time}"}`)
  return (
    `{"traceId":"${span.traceId}","spanId":"${span.spanId}",${parent}"name":${nameJson(span.name)},` +
    `"kind":${kinds[span.kind]},"startTimeUnixNano":"${status.startTime}","endTimeUnixNano":"${end}"` +
    (span.attributes.size === 0 ? "" : `,"attributes":${attributesJson(span.attributes)}`) +
    (events.length === 0 ? "" : `,"events":[${events.join()}]`) +
    (links.length === 0 ? "" : `,"links":[${links.join()}]`) +
    (isFailure(span) ? `,"status":{"code":${failed}}}` : "}")
  )
}

/** What comes before the spans of a batch, and after them. */
export const frameOf = (resource: Readonly<Record<string, string>>) =>
  [
    `{"resourceSpans":[{"resource":{"attributes":${attributesJson(Object.entries(resource))}},"scopeSpans":[{"scope":{"name":"byok"},"spans":[`,
    "]}]}]}"
  ] as const
