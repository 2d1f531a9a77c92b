import { Data } from "effect"

/** One sentence for a person, followed by PostgreSQL's own last words where it failed. */
export class EmbeddedPostgresError extends Data.TaggedError("EmbeddedPostgresError")<{ readonly message: string }> {
  static readonly of = (sentence: string, lastWords = "") =>
    new this({ message: lastWords === "" ? sentence : `${sentence}\n${lastWords}` })
}
