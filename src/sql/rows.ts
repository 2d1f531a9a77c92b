import { Effect, Option, Schema } from "effect"

/** Decodes the rows of a statement. Checks are off: the database's constraints guarantee what they check. */
export const rowsOf = <S extends Schema.ConstraintDecoder<unknown>>(row: S) => {
  const decode = Schema.decodeUnknownEffect(Schema.Array(row), { disableChecks: true })
  return <E>(statement: Effect.Effect<ReadonlyArray<object>, E>) => Effect.flatMap(statement, decode)
}

/** Decodes the first row of a statement, if there is one. */
export const firstRowOf = <S extends Schema.ConstraintDecoder<unknown>>(row: S) => {
  const rows = rowsOf(row)
  return <E>(statement: Effect.Effect<ReadonlyArray<object>, E>) =>
    Effect.map(rows(statement), ([first]) => Option.fromUndefinedOr(first))
}
