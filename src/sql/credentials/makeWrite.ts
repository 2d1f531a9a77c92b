import { randomUUID } from "node:crypto"
import { Effect, Option } from "effect"
import type { Statement } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { CredentialId } from "../../domain/Identifiers.ts"
import { actingPrincipal, actorOf, type Principal } from "../../domain/Principal.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import { LinkClosed } from "../../port/Links.ts"
import { entryOf, insertEntry, wasRecorded } from "../audit/auditing.ts"
import { compileOnce } from "../connection/statements.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { failureOf } from "../connection/DatabaseErrors.ts"
import type { Operation, Query } from "../connection/Query.ts"
import { type CredentialKey, cursorOf } from "../rows/credentialRows.ts"
import { closed, whileOpen } from "../rows/principalRows.ts"
import type { Confine, PoolKey } from "../rows/poolRows.ts"

export type ColumnType = "uuid" | "text" | "text[]" | "boolean" | "integer" | "bytea"

interface Target extends PoolKey {
  readonly id: CredentialId
}

interface Write<Values extends Target, Changed extends CredentialKey, E> {
  readonly operation: Operation
  /** The type of each value that the statement is given. */
  readonly columns: Readonly<Record<string, ColumnType>>
  readonly actsOf: (values: Values) => ReadonlyArray<AuditAct>
  /** Identifies the write in the audit log; random by default. */
  readonly operationOf?: (values: Values) => string
  /** A batch makes the first of several writes with the same key; by default, those of one credential. */
  readonly keyOf?: (values: Values) => string
  /** Roughly how many bytes the values add to a statement. */
  readonly sizeOf?: (values: Values) => number
  /**
   * CTEs that read `given`, a row for each write, and end with `changed`, which has the columns of `returning`. In a batch,
   * `passing` has them pass over pools that another transaction has locked: these writes are made alone.
   */
  readonly change: (passing: Statement.Fragment, confine: Confine) => Statement.Fragment
  readonly returning: ReadonlyArray<keyof Changed & string>
  /** `change` names in `taken` the writes that it does not make because their key is taken. */
  readonly takesKeys?: true
  /** Makes the change, without its entry, where Citus spreads accounts over nodes and cannot run `change`. */
  readonly routed?: (values: Values) => Query<ReadonlyArray<Changed>>
  /** What `changed` was, if the audit log says that an earlier attempt made the write. */
  readonly recall: (values: Values) => Query<ReadonlyArray<Changed>>
  /** Fails with the reason for which a batch did not make the write, if it would not be made alone either. */
  readonly refusal?: (values: Values) => Answer<void, E>
  /** Nothing else keeps it from being made: what has neither a refusal nor a taken key met others, and is tried again. */
  readonly untilRefused?: true
}

const inJson = (value: unknown) =>
  value instanceof Uint8Array
    ? `\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("hex")}`
    : value

/** SQLSTATE of a row whose key is taken: by an earlier attempt, or by another create with the same idempotency key. */
const uniqueViolation = "23505"

/** The result of a write whose key is taken by another one. */
const taken = Symbol("taken")
type Result<Changed> = Option.Option<Changed> | typeof taken

/** SQLSTATE of a member that has no place, because its pool has become full meanwhile. */
const noPlace = "23502"

const isMade = <Changed>(result: Result<Changed>) => result !== taken && Option.isSome(result)

const unlessTaken = <A>(query: Query<A>): Query<A | typeof taken | Option.Option<never>> =>
  Effect.catchTag(query, "SqlError", (error): Query<typeof taken | Option.Option<never>> => {
    const { sqlstate } = failureOf(error)
    if (sqlstate === uniqueViolation) return Effect.succeed(taken)
    return sqlstate === noPlace ? Effect.succeedNone : Effect.fail(error)
  })

/**
 * Makes a write of a credential, which changes one row or none. Invariant: a transaction that changes what a plan may see
 * locks the row of the pool before its members, several in the order of their keys, and raises its version; the change and its
 * audit entry are both stored or neither.
 *
 * The statement of a single write and that of a batch have one text. The audit entry answers for a lost answer:
 * whoever retries asks whether the operation was recorded.
 */
export const makeWrite = <Values extends Target, Changed extends CredentialKey, E = never>(
  { ask, batch, distributed, holding, sql }: ConnectionPool,
  write: Write<Values, Changed, E>
) => {
  type Given = Values & { readonly operation: string; readonly entry: string; readonly principal: Principal }
  const {
    actsOf,
    change,
    keyOf = cursorOf,
    operation,
    operationOf = () => randomUUID(),
    recall,
    refusal,
    returning,
    untilRefused
  } = write
  const types = Object.entries({ ...write.columns, operation: "uuid", entry: "text" })
  const names = types.map(([name]) => name)
  /** A copy of it has the shape that JSON is written from fastest. */
  const blank = JSON.parse(JSON.stringify(Object.fromEntries(names.map((name) => [name, null])))) as object
  const valuesOf = (given: object) => given as Readonly<Record<string, unknown>>

  const statement = (given: Statement.Fragment, passing: string, confine: Confine) => sql`
    WITH given AS (${given}), ${change(sql.literal(passing), confine)}`
  const result =
    write.takesKeys === undefined
      ? sql`SELECT ${sql.csv(returning)} FROM changed`
      : sql`
          SELECT ${sql.csv(returning)}, false AS is_taken FROM changed UNION ALL
          SELECT ${sql.csv(returning.map((name) => sql.literal(name === "account_id" || name === "id" ? name : "NULL")))}, true
          FROM taken`
  const resultOf = (row: (Changed & { readonly is_taken?: boolean }) | undefined): Result<Changed> =>
    row?.is_taken === true ? taken : Option.fromUndefinedOr(row)
  const oneGiven = (parameter: (name: string) => unknown) => {
    const values = types.map(([name, type]) => sql`${parameter(name)}::${sql.literal(type)} AS ${sql(name)}`)
    return sql`SELECT ${sql.csv(values)}, 1 AS n`
  }
  const columns = types.map(([name, type]) => sql`${sql(name)} ${sql.literal(type)}`)
  const manyGiven = (rows: string) =>
    sql`SELECT * FROM json_to_recordset(${rows}::json) AS given (${sql.csv(columns)}, n integer)`
  const compiled = (given: Statement.Fragment, passing: string) => sql<Changed>`
    ${statement(given, passing, () => sql``)}, recorded AS (
      INSERT INTO audit_entries (account_id, operation, events)
      SELECT account_id, operation, entry::json FROM given JOIN changed USING (account_id, id)
    ) ${result}`
  const alone = compileOnce(sql, names, (parameters) =>
    compiled(
      oneGiven((name) => parameters[name]),
      ""
    )
  )
  const together = compileOnce(sql, ["rows"], ({ rows }) => compiled(manyGiven(rows), "SKIP LOCKED"))

  /** Citus runs a statement on one node if each of its tables is confined to an account; the log is on another one. */
  const routed = (given: Given) => {
    const confine: Confine = (table) => sql`AND ${sql.literal(table)}.account_id = ${given.account_id}`
    const changed =
      write.routed?.(given) ??
      sql<Changed>`${statement(
        oneGiven((name) => valuesOf(given)[name]),
        "",
        confine
      )} ${result}`
    const record = ({ length }: ReadonlyArray<Changed>): Query<unknown> =>
      length > 0 ? insertEntry(sql, given) : Effect.void
    const recorded = Effect.tap(changed, record)
    return sql.withTransaction(recorded)
  }
  const attempt = (given: Given): Query<Result<Changed>> =>
    Effect.map(distributed ? routed(given) : alone(valuesOf(given)), ([row]) => resultOf(row))
  /** The lock is a commit of its own, which waits for the replicas in case that of the earlier attempt did not. */
  const wasMade = ({ account_id, operation, provider, workspace_id }: Given) =>
    Effect.andThen(
      sql`
        SELECT 1 FROM pools
        WHERE account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider} FOR NO KEY UPDATE`,
      wasRecorded(sql, account_id, operation)
    )
  const one = (given: Given): Query<Result<Changed>> =>
    Effect.flatMap(
      unlessTaken(
        whileOpen(sql, given.principal, given.account_id, attempt(given), (changed) =>
          isMade(changed) ? given.id : undefined
        )
      ),
      (changed): Query<Result<Changed>> => {
        if (changed !== closed && isMade(changed)) return Effect.succeed(changed)
        const recalled = Effect.flatMap(wasMade(given), (was) => (was ? recall(given) : Effect.succeed([])))
        return Effect.flatMap(recalled, ([before]): Query<Result<Changed>> => {
          if (before !== undefined) return Effect.succeedSome(before)
          if (changed === closed) return Effect.die(new LinkClosed())
          return changed === taken ? Effect.succeed(taken) : Effect.succeedNone
        })
      }
    )

  const lockOf = ({ account_id, provider, workspace_id }: Given) => `${account_id} ${workspace_id} ${provider}`
  const batched = batch<Given, Result<Changed>>({
    operation,
    sizeOf: write.sizeOf,
    lockOf,
    one,
    many: (all) => {
      const firstOf = new Map<string, Given>()
      for (const given of all) if (!firstOf.has(keyOf(given))) firstOf.set(keyOf(given), given)
      const distinct = Array.from(firstOf.values())
      const rows = distinct.map((given, n) => {
        const row: Record<string, unknown> = { ...blank, n }
        for (const name of names) row[name] = inJson(valuesOf(given)[name])
        return row
      })
      return Effect.map(together({ rows: JSON.stringify(rows) }), (rows) => {
        const changed = new Map(rows.map((row) => [cursorOf(row), row]))
        return all.map((given) =>
          resultOf(firstOf.get(keyOf(given)) === given ? changed.get(cursorOf(given)) : undefined)
        )
      })
    }
  })

  /** What the write has changed; none if it changed nothing. */
  return (values: Values): Answer<Option.Option<Changed>, E> =>
    Effect.flatMap(actingPrincipal, (principal) => {
      const entry = entryOf(actorOf(principal), actsOf(values))
      const given: Given = { ...values, operation: operationOf(values), entry, principal }
      const byItself = Effect.suspend(() => holding(lockOf(given), ask(one(given), operation)))
      const again = refusal === undefined ? byItself : Effect.andThen(refusal(values), byItself)
      const settle = (changed: Result<Changed>, isLast: boolean): Answer<Option.Option<Changed>, E> => {
        if (changed === taken) return Effect.succeedNone
        if (isLast || Option.isSome(changed)) return Effect.succeed(changed)
        return Effect.flatMap(again, (result) => settle(result, untilRefused === undefined))
      }
      // Its key may have been taken by an earlier attempt of its batch, whose answer was lost.
      const inBatch = Effect.flatMap(batched(given), (changed) =>
        changed === taken ? byItself : Effect.succeed(changed)
      )
      const written = principal.kind === "link" ? byItself : inBatch
      return Effect.flatMap(written, (changed) => settle(changed, false))
    })
}
