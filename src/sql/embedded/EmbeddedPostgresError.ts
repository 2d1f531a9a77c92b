import { Data } from "effect"

/** A sentence for the operator, followed by PostgreSQL's own last words if it failed. */
export class EmbeddedPostgresError extends Data.TaggedError("EmbeddedPostgresError")<{ readonly message: string }> {
  static readonly of = (sentence: string, lastWords = "") =>
    new this({ message: lastWords === "" ? sentence : `${sentence}\n${lastWords}` })
}
