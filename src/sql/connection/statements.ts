import { DateTime, Effect, Option, Record } from "effect"
import type { ConnectionPool } from "./ConnectionPool.ts"
import type { Operation } from "./Query.ts"
import type { SqlClient, Statement } from "effect/sql"

type Pool = Pick<ConnectionPool, "ask" | "sql">
type Text = readonly [text: TemplateStringsArray, ...values: ReadonlyArray<unknown>]

/** Runs a statement, a tagged template, and returns its rows. */
export const askRows =
  ({ ask, sql }: Pool, operation: Operation) =>
  <Row extends object>(...statement: Text) =>
    ask(sql<Row>(...statement), operation)

/** Runs a statement and returns its first row, if any. */
export const askFirst =
  (pool: Pool, operation: Operation) =>
  <Row extends object>(...statement: Text) =>
    Effect.map(askRows(pool, operation)<Row>(...statement), ([row]) => Option.fromUndefinedOr(row))

/** Runs a statement and returns whether it has a row. */
export const askExists =
  (pool: Pool, operation: Operation) =>
  (...statement: Text) =>
    Effect.map(askRows(pool, operation)(...statement), ({ length }) => length > 0)

/** A row as the driver returns it, with `Date` for `DateTime`. The database guarantees the type of every other field. */
export type Dated<A> = {
  readonly [K in keyof A]: Exclude<A[K], DateTime.Utc> | (DateTime.Utc extends A[K] ? Date : never)
}

/** Converts each `Date` of a row to a `DateTime`. */
export const fromDated = <A extends object>(row: Dated<A>) =>
  Record.map(row as Record<string, unknown>, (value) =>
    value instanceof Date ? DateTime.fromDateUnsafe(value) : value
  ) as A

/** Compiles a statement once, for calls with different values. Sends each value once, however often the statement uses it. */
export const compileOnce = <Name extends string, Row extends object>(
  sql: SqlClient.SqlClient,
  names: ReadonlyArray<Name>,
  statement: (parameters: Readonly<Record<Name, string>>) => Statement.Statement<Row>
) => {
  const byName = Object.fromEntries(names.map((name) => [name, name])) as Record<Name, Name>
  const [text, uses] = statement(byName).compile()
  const distinct = Array.from(new Set(uses)) as ReadonlyArray<Name>
  const numbered = text.replaceAll(
    /\$(\d+)/g,
    (_, n: string) => `$${distinct.indexOf(uses[Number(n) - 1] as Name) + 1}`
  )
  return (values: Readonly<Record<Name, unknown>>) =>
    sql.unsafe<Row>(
      numbered,
      distinct.map((name) => values[name])
    )
}

/** Sorts rows into the order in which all statements lock them, so that no two transactions deadlock. */
export const inLockOrder = <A>(nameOf: (one: A) => string, all: ReadonlyArray<A>) =>
  all.toSorted((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1))
