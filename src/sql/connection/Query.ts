import type { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"

export type QueryError = SqlError.SqlError | Schema.SchemaError

/** A query as the adapters write it, before its failures are scrubbed. It may safely run twice. */
export type Query<A> = Effect.Effect<A, QueryError>
