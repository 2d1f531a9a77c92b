import { Cause, Clock, Context, Exit, type Fiber, Option, References, Tracer } from "effect"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { Operation } from "./Query.ts"

/** The span of an operation, with the tracer and clock of its fiber. */
export interface OperationSpan {
  readonly operation: Operation
  readonly span: Tracer.Span
  readonly tracer: Tracer.Tracer
  readonly clock: Clock.Clock
}

const begin = (
  { clock, operation, tracer }: Omit<OperationSpan, "span">,
  kind: Tracer.SpanKind,
  parent: Option.Option<Tracer.AnySpan>
): OperationSpan => {
  const span = tracer.span({
    name: operation,
    parent,
    kind,
    annotations: Context.empty(),
    links: [],
    startTime: clock.currentTimeNanosUnsafe(),
    root: Option.isNone(parent),
    sampled: true
  })
  if (kind === "client") {
    span.attribute("db.operation.name", operation)
    span.attribute("db.system.name", "postgresql")
  }
  return { operation, span, tracer, clock }
}

/** Begins a span in the current trace; undefined if no trace is recorded. */
export const beginSpan = (fiber: Fiber.Fiber<unknown, unknown>, operation: Operation, kind: Tracer.SpanKind) => {
  const parent = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
  if (parent === undefined || !parent.sampled || !fiber.getRef(References.TracerEnabled)) return undefined
  const [clock, tracer] = [fiber.getRef(Clock.Clock), fiber.getRef(Tracer.Tracer)]
  return begin({ operation, tracer, clock }, kind, Option.some(parent))
}

/**
 * Begins the span of a statement; undefined if none of its requests is traced. For one request, it is a child of the
 * request's span; for several, a root that the spans of the traced requests link to.
 */
export const beginStatement = (requestSpans: ReadonlyArray<OperationSpan>, batchSize: number) => {
  const [first] = requestSpans
  if (first === undefined || batchSize === 1) return first && begin(first, "client", Option.some(first.span))
  const shared = begin(first, "client", Option.none())
  shared.span.attribute("db.operation.batch.size", batchSize)
  for (const { span } of requestSpans) span.addLinks([{ span: shared.span, attributes: {} }])
  return shared
}

/** Ends a span. `error.type` is the failure's SQLSTATE (five characters) or network error code, else its kind. */
export const endSpan = ({ clock, span }: OperationSpan, exit: Exit.Exit<unknown, unknown>): void => {
  if (Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)) {
    const failure = Cause.squash(exit.cause)
    const { kind, sqlstate } =
      failure instanceof DatabaseFailure
        ? failure
        : { kind: failure instanceof Error ? failure.name : "unknown", sqlstate: undefined }
    span.attribute("error.type", sqlstate ?? kind)
    // Every SQLSTATE has a digit, unlike a network error code of five letters such as EPIPE.
    if (sqlstate?.length === 5 && /\d/.test(sqlstate)) span.attribute("db.response.status_code", sqlstate)
  }
  span.end(clock.currentTimeNanosUnsafe(), exit)
}
