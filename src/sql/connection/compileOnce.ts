import type { SqlClient, Statement } from "effect/sql"

/**
 * A statement whose text is compiled once, not at each call. `statement` places each parameter by its name, as often as
 * needed; a call gives the values.
 */
export const compileOnce = <Name extends string, Row extends object>(
  sql: SqlClient.SqlClient,
  names: ReadonlyArray<Name>,
  statement: (parameters: Readonly<Record<Name, string>>) => Statement.Statement<Row>
) => {
  const byName = Object.fromEntries(names.map((name) => [name, name])) as Record<Name, Name>
  const [text, placed] = statement(byName).compile()
  return (values: Readonly<Record<Name, unknown>>) =>
    sql.unsafe<Row>(
      text,
      placed.map((name) => values[name as Name])
    )
}
