import type { SqlClient, Statement } from "effect/sql"

/** Compiles a statement once. A parameter that `statement` places several times is sent once. */
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
