import { Context, Effect, type Exit, Layer, Tracer } from "effect"

class WatchedSpan extends Tracer.NativeSpan {
  ended = () => {}
  override end(endTime: bigint, exit: Exit.Exit<unknown, unknown>) {
    super.end(endTime, exit)
    this.ended()
  }
}

/** The text of every statement that the service has run. */
export class Statements extends Context.Service<Statements, Set<string>>()("byok/test/Statements") {
  /** Put under a service, it takes the place of its tracer. */
  static readonly layer = Layer.unwrap(
    Effect.sync(() => {
      const statements = new Set<string>()
      const tracer = Tracer.make({
        span: (options) => {
          const span = new WatchedSpan(options)
          span.ended = () => {
            const text = span.attributes.get("db.query.text")
            if (typeof text === "string") statements.add(text)
          }
          return span
        }
      })
      return Layer.merge(Layer.succeed(this, statements), Layer.succeed(Tracer.Tracer, tracer))
    })
  )
}
