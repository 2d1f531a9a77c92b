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
import { linkClosed, whileLinkOpen } from "../rows/principalRows.ts"
import type { AndAccount, PoolKey } from "../rows/poolRows.ts"

type ColumnType = "uuid" | "text" | "text[]" | "boolean" | "integer" | "bytea"

interface Target extends PoolKey {
  readonly id: CredentialId
}

interface Write<Values extends Target, Changed extends CredentialKey, E> {
  readonly operation: Operation
  /** The type of each value of the statement. */
  readonly columns: Readonly<Record<string, ColumnType>>
  readonly actsOf: (values: Values) => ReadonlyArray<AuditAct>
  /** Identifies the write in the audit log; random by default. */
  readonly operationOf?: (values: Values) => string
  /**
   * Names the key of a write, by default its credential. A batch makes only the first of several writes with one key.
   */
  readonly keyOf?: (values: Values) => string
  /** Estimates how many bytes the values add to a statement. */
  readonly sizeOf?: (values: Values) => number
  /**
   * CTEs that read `input`, a row per write; one is `changed`, which has the columns of `returning`. In a batch,
   * `skipLocked` is SKIP LOCKED, so that writes to pools that another transaction has locked are retried alone.
   */
  readonly change: (skipLocked: Statement.Fragment, andAccount: AndAccount) => Statement.Fragment
  readonly returning: ReadonlyArray<keyof Changed & string>
  /** Whether `change` omits writes whose idempotency key is taken, and lists them in a CTE `taken`. */
  readonly listsTaken?: true
  /** Makes the change, without its entry, where Citus distributes accounts and cannot run `change`. */
  readonly changeDistributed?: (values: Values) => Query<ReadonlyArray<Changed>>
  /** Returns the changed row again, after the audit log has shown that an earlier attempt changed it. */
  readonly recall: (values: Values) => Query<ReadonlyArray<Changed>>
  /** Fails with the reason if the write cannot be made alone either. */
  readonly refusal?: (values: Values) => Answer<void, E>
  /** Whether to retry until stored or refused, because any other miss is contention; by default, once. */
  readonly untilRefused?: true
}

const inJson = (value: unknown) =>
  value instanceof Uint8Array
    ? `\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("hex")}`
    : value

/** SQLSTATE of a taken id or idempotency key: an earlier attempt or another create has stored it. */
const uniqueViolation = "23505"

/** Stands for the result of a write whose id or idempotency key is taken. */
const taken = Symbol("taken")
/** The changed row; none if nothing changed. */
type Result<Changed> = Option.Option<Changed> | typeof taken

/** SQLSTATE of a new member without a position, because another transaction has inserted its pool meanwhile. */
const noPosition = "23502"

const isChanged = <Changed>(result: Result<Changed>) => result !== taken && Option.isSome(result)

/** Turns the failure of a taken id or idempotency key into `taken`, and `noPosition` into none. */
const unlessTaken = <A>(query: Query<A>): Query<A | typeof taken | Option.Option<never>> =>
  Effect.catchTag(query, "SqlError", (error): Query<typeof taken | Option.Option<never>> => {
    const { sqlstate } = failureOf(error)
    if (sqlstate === uniqueViolation) return Effect.succeed(taken)
    return sqlstate === noPosition ? Effect.succeedNone : Effect.fail(error)
  })

/**
 * Makes a function that stores, changes or deletes one credential, or none. Invariants: a transaction whose changes
 * routers may see locks the row of the pool before its members, several pools in the order of their keys, and raises
 * the version; and the transaction stores both the change and its audit entry, or neither.
 *
 * One write and a batch have the same statement, except for its input. A retry after a lost answer looks for the write
 * in the audit log, by its `operation`.
 */
export const makeWrite = <Values extends Target, Changed extends CredentialKey, E = never>(
  { ask, batch, distributed, sql, withLock }: ConnectionPool,
  write: Write<Values, Changed, E>
) => {
  type Input = Values & { readonly operation: string; readonly entry: string; readonly principal: Principal }
  const { actsOf, change, keyOf = cursorOf, operation, recall, refusal, returning, untilRefused } = write
  const types = Object.entries({ ...write.columns, operation: "uuid", entry: "text" })
  const names = types.map(([name]) => name)
  const byName = (input: object) => input as Readonly<Record<string, unknown>>

  const statement = (input: Statement.Fragment, skipLocked: string, andAccount: AndAccount) => sql`
    WITH input AS (${input}), ${change(sql.literal(skipLocked), andAccount)}`
  const selectResult =
    write.listsTaken === undefined
      ? sql`SELECT ${sql.csv(returning)} FROM changed`
      : sql`
          SELECT ${sql.csv(returning)}, false AS is_taken FROM changed UNION ALL
          SELECT ${sql.csv(returning.map((name) => sql.literal(name === "account_id" || name === "id" ? name : "NULL")))}, true
          FROM taken`
  const resultOf = (row: (Changed & { readonly is_taken?: boolean }) | undefined): Result<Changed> =>
    row?.is_taken === true ? taken : Option.fromUndefinedOr(row)
  const oneInput = (values: Readonly<Record<string, unknown>>) => {
    const columns = types.map(([name, type]) => sql`${values[name]}::${sql.literal(type)} AS ${sql(name)}`)
    return sql`SELECT ${sql.csv(columns)}, 1 AS n`
  }
  const typedColumns = types.map(([name, type]) => sql`${sql(name)} ${sql.literal(type)}`)
  const manyInputs = (rows: string) =>
    sql`SELECT * FROM json_to_recordset(${rows}::json) AS input (${sql.csv(typedColumns)}, n integer)`
  /** Makes the changes and their audit entries. */
  const recordedStatement = (input: Statement.Fragment, skipLocked: string) => sql<Changed>`
    ${statement(input, skipLocked, () => sql``)}, recorded AS (
      INSERT INTO audit_entries (account_id, operation, events)
      SELECT account_id, operation, entry::json FROM input JOIN changed USING (account_id, id)
    ) ${selectResult}`
  const runOne = compileOnce(sql, names, (parameters) => recordedStatement(oneInput(parameters), ""))
  const runMany = compileOnce(sql, ["rows"], ({ rows }) => recordedStatement(manyInputs(rows), "SKIP LOCKED"))

  /** Citus runs a statement on one node if each table is confined to an account; the audit log is on another node. */
  const runDistributed = (input: Input) => {
    const andAccount: AndAccount = (table) => sql`AND ${sql.literal(table)}.account_id = ${input.account_id}`
    const changed =
      write.changeDistributed?.(input) ??
      sql<Changed>`${statement(oneInput(byName(input)), "", andAccount)} ${selectResult}`
    const record = ({ length }: ReadonlyArray<Changed>): Query<unknown> =>
      length > 0 ? insertEntry(sql, input) : Effect.void
    return sql.withTransaction(Effect.tap(changed, record))
  }
  const attempt = (input: Input): Query<Result<Changed>> =>
    Effect.map(distributed ? runDistributed(input) : runOne(byName(input)), ([row]) => resultOf(row))
  /**
   * Whether an earlier attempt stored the write. The lock makes this commit wait for the replicas, as that attempt may
   * not have.
   */
  const wasStored = ({ account_id, operation, provider, workspace_id }: Input) =>
    Effect.andThen(
      sql`
        SELECT 1 FROM pools
        WHERE account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider} FOR NO KEY UPDATE`,
      wasRecorded(sql, account_id, operation)
    )
  /** Makes a write alone. Recalls the result of an earlier attempt whose answer was lost. */
  const writeOne = (input: Input): Query<Result<Changed>> =>
    Effect.flatMap(
      unlessTaken(
        whileLinkOpen(sql, input.principal, input.account_id, attempt(input), (result) =>
          isChanged(result) ? input.id : undefined
        )
      ),
      (result): Query<Result<Changed>> => {
        if (result !== linkClosed && isChanged(result)) return Effect.succeed(result)
        const recalled = Effect.flatMap(wasStored(input), (stored) => (stored ? recall(input) : Effect.succeed([])))
        return Effect.flatMap(recalled, ([changed]): Query<Result<Changed>> => {
          if (changed !== undefined) return Effect.succeedSome(changed)
          if (result === linkClosed) return Effect.die(new LinkClosed())
          return result === taken ? Effect.succeed(taken) : Effect.succeedNone
        })
      }
    )

  const lockOf = ({ account_id, provider, workspace_id }: Input) => `${account_id} ${workspace_id} ${provider}`
  const batched = batch<Input, Result<Changed>>({
    operation,
    sizeOf: write.sizeOf,
    lockOf,
    one: writeOne,
    many: (all) => {
      const firstByKey = new Map<string, Input>()
      for (const input of all) if (!firstByKey.has(keyOf(input))) firstByKey.set(keyOf(input), input)
      const distinct = Array.from(firstByKey.values())
      const rows = distinct.map((input, n) => ({
        ...Object.fromEntries(names.map((name) => [name, inJson(byName(input)[name])])),
        n
      }))
      return Effect.map(runMany({ rows: JSON.stringify(rows) }), (rows) => {
        const changed = new Map(rows.map((row) => [cursorOf(row), row]))
        return all.map((input) =>
          resultOf(firstByKey.get(keyOf(input)) === input ? changed.get(cursorOf(input)) : undefined)
        )
      })
    }
  })

  /** Returns the changed row; none if nothing changed. */
  return (values: Values): Answer<Option.Option<Changed>, E> =>
    Effect.flatMap(actingPrincipal, (principal) => {
      const entry = entryOf(actorOf(principal), actsOf(values))
      const input: Input = { ...values, operation: write.operationOf?.(values) ?? randomUUID(), entry, principal }
      const unbatched = Effect.suspend(() => withLock(lockOf(input), ask(writeOne(input), operation)))
      const retry = refusal === undefined ? unbatched : Effect.andThen(refusal(values), unbatched)
      /** Retries a write that changed nothing, unless its attempt was the last. */
      const settle = (result: Result<Changed>, isLast: boolean): Answer<Option.Option<Changed>, E> => {
        if (result === taken) return Effect.succeedNone
        if (isLast || Option.isSome(result)) return Effect.succeed(result)
        return Effect.flatMap(retry, (result) => settle(result, untilRefused === undefined))
      }
      // An earlier attempt of the batch, whose answer was lost, may have taken the key.
      const inBatch = Effect.flatMap(batched(input), (result) =>
        result === taken ? unbatched : Effect.succeed(result)
      )
      // A link's write needs a transaction that locks the link.
      const written = principal.kind === "link" ? unbatched : inBatch
      return Effect.flatMap(written, (result) => settle(result, false))
    })
}
