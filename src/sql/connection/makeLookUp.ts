import { Effect, Option } from "effect"
import type { Statement } from "effect/sql"
import { compileOnce, inLockOrder } from "./statements.ts"
import type { ConnectionPool } from "./ConnectionPool.ts"
import type { Operation } from "./Query.ts"

/** In a batch, a row also has the number of its request. `read` ignores it: copying rows without it would be slow. */
interface Numbered {
  readonly n?: number
}

/** A SELECT that finds at most one row. */
interface LookUp<Wanted, Row extends object, A> {
  readonly operation: Operation
  /** The types of the values of a request. */
  readonly by: Readonly<Record<keyof Wanted & string, "uuid" | "text" | "bytea">>
  readonly select: (values: Readonly<Record<keyof Wanted & string, Statement.Fragment>>) => Statement.Statement<Row>
  readonly read: (row: Row & Numbered, wanted: Wanted) => A
  /** For a SELECT that locks: requests of one name share a row, and rows are locked in the order of their names. */
  readonly nameOf?: (wanted: Wanted) => string
}

/**
 * Makes a look-up of one row, alone or in a batch. The statement of a batch runs the SELECT for each request; OFFSET 0 makes
 * PostgreSQL use the same index as for one.
 */
export const makeLookUp = <Wanted extends object, Row extends object, A>(
  { batch, sql }: ConnectionPool,
  { by, nameOf, operation, read, select }: LookUp<Wanted, Row, A>
) => {
  type Name = keyof Wanted & string
  const names = Object.keys(by) as Array<Name>
  const each = <Value>(valueOf: (name: Name) => Value) =>
    Object.fromEntries(names.map((name) => [name, valueOf(name)])) as Record<Name, Value>
  const one = compileOnce(sql, names, (parameters) => select(each((name) => sql`${parameters[name]}`)))
  const many = compileOnce(
    sql,
    names,
    (parameters) => sql<Row & Required<Numbered>>`
      SELECT wanted.n::int AS n, matching.* FROM unnest(
        ${sql.csv(names.map((name) => sql`${parameters[name]}::${sql.literal(by[name])}[]`))}
      ) WITH ORDINALITY AS wanted (${sql.csv(names)}, n),
      LATERAL (${select(each((name) => sql.literal(`wanted.${name}`)))} OFFSET 0) AS matching`
  )
  return batch<Wanted, Option.Option<A>>({
    operation,
    one: (wanted) =>
      Effect.map(one(wanted), ([row]) => (row === undefined ? Option.none() : Option.some(read(row, wanted)))),
    many: (all) => {
      const keyOf = nameOf ?? ((wanted: Wanted) => wanted)
      const distinct = Array.from(new Map(all.map((wanted) => [keyOf(wanted), wanted])).values())
      const sorted = nameOf === undefined ? distinct : inLockOrder(nameOf, distinct)
      return Effect.map(many(each((name) => sorted.map((wanted) => wanted[name]))), (rows) => {
        const rowOf = new Map(rows.map((row) => [keyOf(sorted[row.n - 1] as Wanted), row]))
        return all.map((wanted) =>
          Option.map(Option.fromUndefinedOr(rowOf.get(keyOf(wanted))), (row) => read(row, wanted))
        )
      })
    }
  })
}
