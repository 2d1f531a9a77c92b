import { assert } from "@effect/vitest"
import { createServer } from "node:http"
import { Context, Effect, Layer, Schema } from "effect"
import { eventually } from "../process/eventually.ts"

const Value = Schema.Struct({
  stringValue: Schema.optionalKey(Schema.String),
  intValue: Schema.optionalKey(Schema.Int),
  boolValue: Schema.optionalKey(Schema.Boolean),
  arrayValue: Schema.optionalKey(Schema.Struct({ values: Schema.Array(Schema.Struct({ stringValue: Schema.String })) }))
})
const Attributes = Schema.Array(Schema.Struct({ key: Schema.String, value: Value }))

const Span = Schema.Struct({
  traceId: Schema.String.check(Schema.isPattern(/^[0-9a-f]{32}$/)),
  spanId: Schema.String.check(Schema.isPattern(/^[0-9a-f]{16}$/)),
  parentSpanId: Schema.optionalKey(Schema.String.check(Schema.isPattern(/^[0-9a-f]{16}$/))),
  name: Schema.String,
  kind: Schema.Int,
  startTimeUnixNano: Schema.String.check(Schema.isPattern(/^\d{19}$/)),
  endTimeUnixNano: Schema.String.check(Schema.isPattern(/^\d{19}$/)),
  attributes: Schema.optionalKey(Attributes),
  events: Schema.optionalKey(Schema.Array(Schema.Struct({ name: Schema.String, timeUnixNano: Schema.String }))),
  links: Schema.optionalKey(Schema.Array(Schema.Struct({ traceId: Schema.String, spanId: Schema.String }))),
  status: Schema.optionalKey(Schema.Struct({ code: Schema.Int }))
})

const Traces = Schema.Struct({
  resourceSpans: Schema.Array(
    Schema.Struct({
      resource: Schema.Struct({ attributes: Attributes }),
      scopeSpans: Schema.Array(
        Schema.Struct({ scope: Schema.Struct({ name: Schema.String }), spans: Schema.Array(Span) })
      )
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
      spans.map((span) => ({ ...span, attributes: plain(span.attributes ?? []), resource: plain(resource.attributes) }))
    )
  )

const listen = Effect.callback<{
  readonly url: URL
  readonly spans: Array<ReceivedSpan>
  readonly headers: Array<Readonly<Record<string, unknown>>>
  readonly answer: (status: number) => void
  readonly close: () => void
}>((resume) => {
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
  }).listen(0, "127.0.0.1", () => {
    const address = server.address()
    assert(typeof address === "object" && address !== null)
    const close = () => {
      server.close()
      server.closeAllConnections()
    }
    const url = new URL(`http://127.0.0.1:${address.port}/v1/traces`)
    resume(Effect.succeed({ url, spans, headers, close, answer: (given) => (status = given) }))
  })
})

/** A collector of OpenTelemetry that reads OTLP over HTTP in JSON, strictly. */
export class SpanCollector extends Context.Service<
  SpanCollector,
  Omit<Effect.Success<typeof listen>, "close"> & {
    /** Waits until a span of that name is there whose trace was not there before, then returns its whole trace. */
    readonly traceOf: (name: string, traceId?: string) => Effect.Effect<ReadonlyArray<ReceivedSpan>>
  }
>()("byok/test/SpanCollector") {
  static readonly make = Effect.map(
    Effect.acquireRelease(listen, ({ close }) => Effect.sync(close)),
    (collector) => {
      const traceOf = (name: string, traceId?: string) => {
        const found = () =>
          collector.spans.find((span) => span.name === name && (traceId === undefined || span.traceId === traceId))
        return Effect.map(
          eventually(
            `a span ${name}`,
            Effect.sync(() => found() !== undefined)
          ),
          () => collector.spans.filter((span) => span.traceId === found()?.traceId)
        )
      }
      return { ...collector, traceOf }
    }
  )

  static readonly layer = Layer.effect(this, this.make)
}
