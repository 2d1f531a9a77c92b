import { type Context, type Exit, Option, type Tracer } from "effect"
import { newSpanId } from "./traceIds.ts"

type Options = Parameters<Tracer.Tracer["span"]>[0]

/** A span that is passed on when it ends, if its trace is recorded. */
export class RecordedSpan implements Tracer.Span {
  readonly _tag = "Span"
  readonly name: string
  readonly traceId: string
  readonly spanId = newSpanId()
  readonly parent: Option.Option<Tracer.AnySpan>
  readonly annotations: Context.Context<never>
  readonly kind: Tracer.SpanKind
  readonly sampled: boolean
  readonly links: Array<Tracer.SpanLink>
  readonly attributes = new Map<string, unknown>()
  readonly events: Array<{ readonly name: string; readonly time: bigint }> = []
  status: Tracer.SpanStatus
  readonly #ended: (span: RecordedSpan) => void

  constructor(options: Options, traceId: string, sampled: boolean, ended: (span: RecordedSpan) => void) {
    this.name = options.name
    this.traceId = traceId
    this.parent = options.parent
    this.annotations = options.annotations
    this.kind = options.kind
    this.links = options.links
    this.sampled = sampled
    this.status = { _tag: "Started", startTime: options.startTime }
    this.#ended = ended
  }

  end(endTime: bigint, exit: Exit.Exit<unknown, unknown>): void {
    if (this.status._tag === "Ended") return
    this.status = { _tag: "Ended", startTime: this.status.startTime, endTime, exit }
    if (this.sampled) this.#ended(this)
  }

  attribute(key: string, value: unknown): void {
    if (this.sampled && this.status._tag !== "Ended") this.attributes.set(key, value)
  }

  event(name: string, time: bigint): void {
    if (this.sampled && this.status._tag !== "Ended") this.events.push({ name, time })
  }

  addLinks(links: ReadonlyArray<Tracer.SpanLink>): void {
    if (this.sampled && this.status._tag !== "Ended") this.links.push(...links)
  }
}
