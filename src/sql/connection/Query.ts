import type { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"

export type QueryError = SqlError.SqlError | Schema.SchemaError

/** What a statement is called in traces and metrics. */
export type Operation = `${string}.${string}`

/** A query as adapters write it, its errors not yet scrubbed. It must be safe to run twice. */
export type Query<A> = Effect.Effect<A, QueryError>
