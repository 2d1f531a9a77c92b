import { DateTime, Effect, Option, Record } from "effect"
import type { ConnectionPool } from "./ConnectionPool.ts"
import type { Operation } from "./Query.ts"
import type { SqlClient, Statement } from "effect/sql"

type Pool = Pick<ConnectionPool, "ask" | "sql">
type Text = readonly [text: TemplateStringsArray, ...values: ReadonlyArray<unknown>]

/** Asks one statement, which follows as a tagged template, for its rows. */
export const askRows =
  ({ ask, sql }: Pool, operation: Operation) =>
  <Row extends object>(...statement: Text) =>
    ask(sql<Row>(...statement), operation)

/** Asks for the first row, if there is one. */
export const askFirst =
  (pool: Pool, operation: Operation) =>
  <Row extends object>(...statement: Text) =>
    Effect.map(askRows(pool, operation)<Row>(...statement), ([row]) => Option.fromUndefinedOr(row))

/** Asks whether there is a row. */
export const askWhether =
  (pool: Pool, operation: Operation) =>
  (...statement: Text) =>
    Effect.map(askRows(pool, operation)(...statement), ({ length }) => length > 0)

/** A row as the driver reads it: the database's types and constraints guarantee the form of every field. */
export type Dated<A> = {
  readonly [K in keyof A]: Exclude<A[K], DateTime.Utc> | (DateTime.Utc extends A[K] ? Date : never)
}

export const datedOf = <A extends object>(row: Dated<A>) =>
  Record.map(row as Record<string, unknown>, (value) =>
    value instanceof Date ? DateTime.fromDateUnsafe(value) : value
  ) as A

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

/** Statements that lock several rows lock them in one order, so that no two transactions wait for each other. */
export const inLockOrder = <A>(nameOf: (one: A) => string, all: ReadonlyArray<A>) =>
  all.toSorted((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1))
