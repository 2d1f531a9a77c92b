import { DateTime, Effect, Option, Record } from "effect"
import type { ConnectionPool } from "./ConnectionPool.ts"
import type { Operation } from "./Query.ts"
import type { SqlClient, Statement } from "effect/sql"

type Pool = Pick<ConnectionPool, "ask" | "sql">
/** The arguments of a tagged template. */
type Template = readonly [text: TemplateStringsArray, ...values: ReadonlyArray<unknown>]

/** Runs a statement of an account, if it has one: a tagged template. Returns its rows. */
export const askRows =
  ({ ask, sql }: Pool, operation: Operation, account_id?: string) =>
  <Row extends object>(...statement: Template) =>
    ask(sql<Row>(...statement), operation, account_id)

/** Runs a statement and returns its first row, if any. */
export const askFirst =
  (pool: Pool, operation: Operation, account_id?: string) =>
  <Row extends object>(...statement: Template) =>
    Effect.map(askRows(pool, operation, account_id)<Row>(...statement), ([row]) => Option.fromUndefinedOr(row))

/** Runs a statement and returns whether it has a row. */
export const askExists =
  (pool: Pool, operation: Operation, account_id?: string) =>
  (...statement: Template) =>
    Effect.map(askRows(pool, operation, account_id)(...statement), ({ length }) => length > 0)

/** A row as the driver returns it, with `Date` for `DateTime`. Other fields have the types of their columns. */
export type Dated<A> = {
  readonly [K in keyof A]: Exclude<A[K], DateTime.Utc> | (DateTime.Utc extends A[K] ? Date : never)
}

/** Converts each `Date` of a row to a `DateTime`. */
export const fromDated = <A extends object>(row: Dated<A>) =>
  Record.map(row as Record<string, unknown>, (value) =>
    value instanceof Date ? DateTime.fromDateUnsafe(value) : value
  ) as A

/**
 * Compiles a statement once, for calls with different values. Sends each value once, however often the statement uses
 * it. `statement` gets its parameters by name.
 */
const compileOnce = <Name extends string, Row extends object>(
  sql: SqlClient.SqlClient,
  names: ReadonlyArray<Name>,
  statement: (parameters: Readonly<Record<Name, string>>) => Statement.Statement<Row>
) => {
  // Compiles with names in place of values: `nameOfPlaceholder` then has the name that each $1, $2, … stands for.
  const namesAsValues = Object.fromEntries(names.map((name) => [name, name])) as Record<Name, Name>
  const [text, nameOfPlaceholder] = statement(namesAsValues).compile()
  const usedNames = Array.from(new Set(nameOfPlaceholder)) as ReadonlyArray<Name>
  const renumbered = text.replaceAll(
    /\$(\d+)/g,
    (_, number: string) => `$${usedNames.indexOf(nameOfPlaceholder[Number(number) - 1] as Name) + 1}`
  )
  return (values: Readonly<Record<Name, unknown>>) =>
    sql.unsafe<Row>(
      renumbered,
      usedNames.map((name) => values[name])
    )
}

/** Sorts rows into the order in which all statements lock them, so that no two transactions deadlock. */
export const inLockOrder = <A>(nameOf: (one: A) => string, all: ReadonlyArray<A>) =>
  all.toSorted((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1))

/**
 * SQL for a table `name` of arrays, one per column: its first row has the first value of each array, and so on. Its
 * column `n` numbers the rows from 1. `types` has the SQL type of each column, and `valuesOf` its array.
 */
export const tableOf = <Column extends string>(
  sql: SqlClient.SqlClient,
  name: string,
  types: Readonly<Record<Column, string>>,
  valuesOf: (column: Column) => unknown
) => {
  const columns = Record.keys(types)
  const arrays = columns.map((column) => sql`${valuesOf(column)}::${sql.literal(types[column])}[]`)
  const names = columns.map((column) => sql`${sql(column)}`)
  return sql`unnest(${sql.csv(arrays)}) WITH ORDINALITY AS ${sql.literal(name)} (${sql.csv(names)}, n)`
}

interface Numbered {
  /** In a batch, the number of the row's request from 1. `read` gets the row with it: copying would be slow. */
  readonly n?: number
}

/** A SELECT that finds at most one row. */
interface LookUp<Wanted, Row extends object, A> {
  readonly operation: Operation
  /** The values of a request, with their SQL types. */
  readonly by: Readonly<Record<keyof Wanted & string, "uuid" | "text" | "bytea">>
  readonly select: (values: Readonly<Record<keyof Wanted & string, Statement.Fragment>>) => Statement.Statement<Row>
  readonly read: (row: Row & Numbered, wanted: Wanted) => A
  /** Names the row, so that requests can share it. */
  readonly nameOf?: (wanted: Wanted) => string
}

/**
 * Makes a function that looks up one row, alone or in a batch; none if no row matches. The statement of a batch runs
 * the SELECT for each request; OFFSET 0 makes PostgreSQL use the same index as for a single request.
 */
export const makeLookUp = <Wanted extends object, Row extends object, A>(
  { batch, sql }: ConnectionPool,
  { by, nameOf, operation, read, select }: LookUp<Wanted, Row, A>
) => {
  type Name = keyof Wanted & string
  const names = Object.keys(by) as Array<Name>
  const mapNames = <Value>(valueOf: (name: Name) => Value) =>
    Object.fromEntries(names.map((name) => [name, valueOf(name)])) as Record<Name, Value>
  const one = compileOnce(sql, names, (parameters) => select(mapNames((name) => sql`${parameters[name]}`)))
  const many = compileOnce(
    sql,
    names,
    (parameters) => sql<Row & Required<Numbered>>`
      SELECT wanted.n::int AS n, matching.* FROM ${tableOf(sql, "wanted", by, (name) => parameters[name])},
      LATERAL (${select(mapNames((name) => sql.literal(`wanted.${name}`)))} OFFSET 0) AS matching`
  )
  return batch<Wanted, Option.Option<A>>({
    operation,
    one: (wanted) =>
      Effect.map(one(wanted), ([row]) => (row === undefined ? Option.none() : Option.some(read(row, wanted)))),
    many: (all) => {
      const keyOf = nameOf ?? ((wanted: Wanted) => wanted)
      const distinct = Array.from(new Map(all.map((wanted) => [keyOf(wanted), wanted])).values())
      return Effect.map(many(mapNames((name) => distinct.map((wanted) => wanted[name]))), (rows) => {
        const rowOf = new Map(rows.map((row) => [keyOf(distinct[row.n - 1] as Wanted), row]))
        return all.map((wanted) =>
          Option.map(Option.fromUndefinedOr(rowOf.get(keyOf(wanted))), (row) => read(row, wanted))
        )
      })
    }
  })
}
