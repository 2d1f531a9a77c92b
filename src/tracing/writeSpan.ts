import { Cause, Option } from "effect"
import type { RecordedSpan } from "./RecordedSpan.ts"

const kinds = { internal: 1, server: 2, client: 3, producer: 4, consumer: 5 } as const

/** What `status.code` says of a failure; a success leaves it out. */
const failed = 2

/** Where spans are written. Beyond the last byte only `length` grows, which shows that there was no room. */
export interface Target {
  readonly bytes: Uint8Array
  length: number
}

/** Copies characters: a string that is joined first is one more to be collected. */
const write = (target: Target, ascii: string): void => {
  const { bytes, length } = target
  for (let index = 0; index < ascii.length; index += 1) bytes[length + index] = ascii.charCodeAt(index)
  target.length = length + ascii.length
}

const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`

/** JSON in ASCII. */
const textJson = (text: string) => JSON.stringify(text).replace(/[\u0080-\uffff]/g, escaped)

/** Text that JSON quotes as it is, as nearly all is. */
const isPlain = (text: string) => /^[ !#-[\]-~]*$/.test(text)

const writeText = (target: Target, text: string): void => {
  if (!isPlain(text)) return write(target, textJson(text))
  write(target, '"')
  write(target, text)
  write(target, '"')
}

/** Names come from the code, so there are few of them. */
const names = new Map<string, string>()

const nameJson = (name: string) => {
  const known = names.get(name)
  if (known !== undefined) return known
  const json = textJson(name)
  if (names.size < 1000) names.set(name, json)
  return json
}

const writeList = <A>(target: Target, all: Iterable<A>, each: (one: A) => void): void => {
  let comma = ""
  for (const one of all) {
    write(target, comma)
    each(one)
    comma = ","
  }
}

const writeValue = (target: Target, value: unknown): void => {
  switch (typeof value) {
    case "boolean":
      return write(target, `{"boolValue":${value}}`)
    case "number":
      if (Number.isSafeInteger(value)) return write(target, `{"intValue":${value}}`)
      return write(target, `{"doubleValue":${Number.isFinite(value) ? value : `"${value}"`}}`)
    default:
      if (Array.isArray(value)) {
        write(target, '{"arrayValue":{"values":[')
        writeList(target, value, (one) => writeValue(target, one))
        return write(target, "]}}")
      }
      write(target, '{"stringValue":')
      writeText(target, String(value))
      write(target, "}")
  }
}

const writeAttributes = (target: Target, attributes: Iterable<readonly [string, unknown]>): void => {
  write(target, ',"attributes":[')
  writeList(target, attributes, ([key, value]) => {
    write(target, '{"key":')
    write(target, nameJson(key))
    write(target, ',"value":')
    writeValue(target, value)
    write(target, "}")
  })
  write(target, "]")
}

const writeEvents = (target: Target, events: RecordedSpan["events"]): void => {
  write(target, ',"events":[')
  writeList(target, events, ({ name, time }) => write(target, `{"name":${nameJson(name)},"timeUnixNano":"${time}"}`))
  write(target, "]")
}

const writeLinks = (target: Target, links: RecordedSpan["links"]): void => {
  write(target, ',"links":[')
  writeList(target, links, ({ attributes, span: { spanId, traceId } }) => {
    write(target, `{"traceId":"${traceId.padStart(32, "0")}","spanId":"${spanId}"`)
    const entries = Object.entries(attributes)
    if (entries.length > 0) writeAttributes(target, entries)
    write(target, "}")
  })
  write(target, "]")
}

const isFailure = ({ status }: RecordedSpan) =>
  status._tag === "Ended" && status.exit._tag === "Failure" && !Cause.hasInterruptsOnly(status.exit.cause)

/**
 * Writes a span as OTLP's JSON. Neither the message of a failure nor its stack is in it: only `error.type`, if whoever
 * ended the span has set it.
 */
export const writeSpan = (target: Target, span: RecordedSpan): void => {
  const { attributes, events, kind, links, name, parent, spanId, status, traceId } = span
  write(target, '{"traceId":"')
  write(target, traceId)
  write(target, '","spanId":"')
  write(target, spanId)
  if (Option.isSome(parent)) {
    write(target, '","parentSpanId":"')
    write(target, parent.value.spanId)
  }
  write(target, '","name":')
  write(target, nameJson(name))
  write(target, `,"kind":${kinds[kind]},"startTimeUnixNano":"`)
  write(target, String(status.startTime))
  write(target, '","endTimeUnixNano":"')
  write(target, String(status._tag === "Ended" ? status.endTime : status.startTime))
  write(target, '"')
  if (attributes.size > 0) writeAttributes(target, attributes)
  if (events.length > 0) writeEvents(target, events)
  if (links.length > 0) writeLinks(target, links)
  if (isFailure(span)) write(target, `,"status":{"code":${failed}}`)
  write(target, "}")
}

/** What comes before the spans of a batch, and after them. */
export const frameOf = (resource: Readonly<Record<string, string>>): readonly [before: Buffer, after: Buffer] => {
  const attributes = Object.entries(resource).map(([key, stringValue]) => ({ key, value: { stringValue } }))
  const scopeSpans = [{ scope: { name: "byok" }, spans: [] }]
  const empty = JSON.stringify({ resourceSpans: [{ resource: { attributes }, scopeSpans }] })
  const end = "]}]}]}"
  return [Buffer.from(empty.slice(0, -end.length)), Buffer.from(end)]
}
