import { Context, Effect, Layer, Tracer } from "effect"
import { tracerTo } from "../process/Recording.ts"

/** The text of every statement that the service has run. */
export class Statements extends Context.Service<Statements, Set<string>>()("byok/test/Statements") {
  /** Replaces the tracer of a service. */
  static readonly layer = Layer.unwrap(
    Effect.sync(() => {
      const statements = new Set<string>()
      const tracer = tracerTo(({ attributes }) => {
        const text = attributes.get("db.query.text")
        if (typeof text === "string") statements.add(text)
      })
      return Layer.merge(Layer.succeed(this, statements), Layer.succeed(Tracer.Tracer, tracer))
    })
  )
}
