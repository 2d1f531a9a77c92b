import { Effect, Option, Schema } from "effect"

/** Decodes what a statement answers. Forms that the database's own types and constraints guarantee are not checked again. */
export const rowsOf = <S extends Schema.ConstraintDecoder<unknown>>(row: S) => {
  const decode = Schema.decodeUnknownEffect(Schema.Array(row), { disableChecks: true })
  return <E>(statement: Effect.Effect<ReadonlyArray<object>, E>) => Effect.flatMap(statement, decode)
}

/** The same for a statement that answers with one row at most. */
export const firstRowOf = <S extends Schema.ConstraintDecoder<unknown>>(row: S) => {
  const rows = rowsOf(row)
  return <E>(statement: Effect.Effect<ReadonlyArray<object>, E>) =>
    Effect.map(rows(statement), ([first]) => Option.fromUndefinedOr(first))
}
