import type { SqlClient, Statement } from "effect/sql"

/**
 * A statement whose text is compiled once, not at each call. `statement` places each parameter by its name; one that is
 * placed several times is sent once. A call gives the values.
 */
export const compileOnce = <Name extends string, Row extends object>(
  sql: SqlClient.SqlClient,
  names: ReadonlyArray<Name>,
  statement: (parameters: Readonly<Record<Name, string>>) => Statement.Statement<Row>
) => {
  const byName = Object.fromEntries(names.map((name) => [name, name])) as Record<Name, Name>
  const [text, placed] = statement(byName).compile()
  const sent = Array.from(new Set(placed)) as ReadonlyArray<Name>
  const numbered = text.replaceAll(/\$(\d+)/g, (_, n: string) => `$${sent.indexOf(placed[Number(n) - 1] as Name) + 1}`)
  return (values: Readonly<Record<Name, unknown>>) =>
    sql.unsafe<Row>(
      numbered,
      sent.map((name) => values[name])
    )
}
