import { createServer } from "node:http"
import { Context, Effect, Layer, Schema } from "effect"
import { listening } from "../database/listen.ts"
import { eventually } from "../process/eventually.ts"

const Value = Schema.Struct({
  stringValue: Schema.optionalKey(Schema.String),
  intValue: Schema.optionalKey(Schema.Int),
  boolValue: Schema.optionalKey(Schema.Boolean),
  arrayValue: Schema.optionalKey(Schema.Struct({ values: Schema.Array(Schema.Struct({ stringValue: Schema.String })) }))
})
const Attributes = Schema.Array(Schema.Struct({ key: Schema.String, value: Value }))

const SpanId = Schema.String.check(Schema.isPattern(/^[0-9a-f]{16}$/))
const TraceId = Schema.String.check(Schema.isPattern(/^[0-9a-f]{32}$/))
const UnixNano = Schema.String.check(Schema.isPattern(/^\d{19}$/))

/** Every text that a span can hold: no other may be sent. */
const Span = Schema.Struct({
  traceId: TraceId,
  spanId: SpanId,
  parentSpanId: Schema.optionalKey(SpanId),
  name: Schema.String,
  kind: Schema.Int,
  startTimeUnixNano: UnixNano,
  endTimeUnixNano: UnixNano,
  attributes: Attributes,
  events: Schema.Tuple([]),
  links: Schema.Array(
    Schema.Struct({
      traceId: TraceId,
      spanId: SpanId,
      attributes: Schema.Tuple([]),
      droppedAttributesCount: Schema.Int
    })
  ),
  status: Schema.Struct({ code: Schema.Int }),
  droppedAttributesCount: Schema.Int,
  droppedEventsCount: Schema.Int,
  droppedLinksCount: Schema.Int
})

const Scope = Schema.Struct({ name: Schema.String, version: Schema.String })
const Resource = Schema.Struct({ attributes: Attributes, droppedAttributesCount: Schema.Int })
const Traces = Schema.Struct({
  resourceSpans: Schema.Array(
    Schema.Struct({
      resource: Resource,
      scopeSpans: Schema.Array(Schema.Struct({ scope: Scope, spans: Schema.Array(Span) }))
    })
  )
})

const decode = Schema.decodeUnknownSync(Schema.fromJsonString(Traces), { onExcessProperty: "error" })

const plain = (attributes: typeof Attributes.Type) =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.arrayValue?.values.map(({ stringValue }) => stringValue) ?? Object.values(value)[0]
    ])
  )

/** A span as the collector got it, with attributes as an object. */
export interface ReceivedSpan extends Omit<typeof Span.Type, "attributes"> {
  readonly attributes: Readonly<Record<string, unknown>>
  readonly resource: Readonly<Record<string, unknown>>
}

const spansIn = (body: string): ReadonlyArray<ReceivedSpan> =>
  decode(body).resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({ ...span, attributes: plain(span.attributes), resource: plain(resource.attributes) }))
    )
  )

const start = Effect.gen(function* () {
  const spans: Array<ReceivedSpan> = []
  const headers: Array<Readonly<Record<string, unknown>>> = []
  let status = 200
  const server = createServer((request, response) => {
    let body = ""
    headers.push({ ...request.headers, path: request.url })
    request.setEncoding("utf8").on("data", (part: string) => (body += part))
    request.once("end", () => {
      if (status === 200) spans.push(...spansIn(body))
      if (status > 0) response.writeHead(status, { "content-type": "application/json" }).end("{}")
    })
  })
  const url = new URL(`http://127.0.0.1:${yield* listening(server)}/v1/traces`)
  /** Waits for a span of that name, of that trace if one is given, then returns its whole trace. */
  const traceOf = (name: string, traceId?: string) => {
    const found = () => spans.find((span) => span.name === name && (traceId === undefined || span.traceId === traceId))
    return Effect.map(
      eventually(`a span ${name}`, () => found() !== undefined),
      (): ReadonlyArray<ReceivedSpan> => spans.filter((span) => span.traceId === found()?.traceId)
    )
  }
  return { url, spans, headers, answer: (given: number) => void (status = given), traceOf }
})

/** A collector of OpenTelemetry that reads OTLP over HTTP in JSON, strictly. */
export class SpanCollector extends Context.Service<SpanCollector, Effect.Success<typeof start>>()(
  "byok/test/SpanCollector"
) {
  static readonly make = start
  static readonly layer = Layer.effect(this, this.make)
}
