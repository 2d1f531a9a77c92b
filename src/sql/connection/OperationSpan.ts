import { Cause, Clock, Context, Exit, type Fiber, Option, References, Tracer } from "effect"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { Operation } from "./Query.ts"

/** What is wrong, in one word: the state that PostgreSQL reports, or the kind of the failure. */
const errorTypeOf = (failure: unknown) =>
  failure instanceof DatabaseFailure
    ? (failure.sqlstate ?? failure.kind)
    : failure instanceof Error
      ? failure.name
      : "unknown"

/** The span of an operation, with what is needed to end it and to begin others. */
export class OperationSpan {
  readonly #operation: Operation
  readonly #span: Tracer.Span
  readonly #tracer: Tracer.Tracer
  readonly #clock: Clock.Clock

  private constructor(
    operation: Operation,
    tracer: Tracer.Tracer,
    clock: Clock.Clock,
    { kind, parent }: { readonly kind: Tracer.SpanKind; readonly parent: Option.Option<Tracer.AnySpan> }
  ) {
    this.#operation = operation
    this.#tracer = tracer
    this.#clock = clock
    this.#span = tracer.span({
      name: operation,
      parent,
      kind,
      annotations: Context.empty(),
      links: [],
      startTime: clock.currentTimeNanosUnsafe(),
      root: Option.isNone(parent),
      sampled: true
    })
    if (kind !== "client") return
    this.#span.attribute("db.operation.name", operation)
    this.#span.attribute("db.system.name", "postgresql")
  }

  /** A span of the current trace, if that is recorded: a statement outside a trace starts none. */
  static begin(fiber: Fiber.Fiber<unknown, unknown>, operation: Operation, kind: Tracer.SpanKind) {
    const parent = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
    if (parent === undefined || !parent.sampled || !fiber.getRef(References.TracerEnabled)) return undefined
    const clock = fiber.getRef(Clock.Clock)
    return new OperationSpan(operation, fiber.getRef(Tracer.Tracer), clock, { kind, parent: Option.some(parent) })
  }

  /**
   * The span of the statement that answers `size` requests. It is the child of the span of a single one; if there are
   * several, it belongs to none of their traces, and each links to it.
   */
  static ofStatement(waiting: ReadonlyArray<OperationSpan>, size: number) {
    const [first] = waiting
    if (first === undefined) return undefined
    const parent = size === 1 ? Option.some(first.#span) : Option.none()
    const made = new OperationSpan(first.#operation, first.#tracer, first.#clock, { kind: "client", parent })
    if (size === 1) return made
    made.#span.attribute("db.operation.batch.size", size)
    for (const one of waiting) one.#span.addLinks([{ span: made.#span, attributes: {} }])
    return made
  }

  readonly end = (exit: Exit.Exit<unknown, unknown>): void => {
    if (Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)) {
      const failure = Cause.squash(exit.cause)
      this.#span.attribute("error.type", errorTypeOf(failure))
      if (failure instanceof DatabaseFailure && /^[0-9A-Z]{5}$/.test(failure.sqlstate ?? "")) {
        this.#span.attribute("db.response.status_code", failure.sqlstate)
      }
    }
    this.#span.end(this.#clock.currentTimeNanosUnsafe(), exit)
  }
}
