import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { CredentialReference } from "../../domain/Identifiers.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import type { Query } from "../connection/Query.ts"
import { inLockOrder, tableOf } from "../connection/statements.ts"
import { keyColumns, samePool } from "./poolRows.ts"

/** References to credentials as a table `wanted`. */
export const referencesOf = (sql: SqlClient.SqlClient, credentials: ReadonlyArray<CredentialReference>) =>
  tableOf(sql, "wanted", { account_id: "uuid", credential_id: "uuid" }, (column) =>
    credentials.map((one) => one[column])
  )

const nameOf = ({ account_id, credential_id }: CredentialReference) => `${account_id} ${credential_id}`

/** A set of credentials: `has` tells whether a credential is in it, and `distinct` lists it. */
export const setOf = (credentials: ReadonlyArray<CredentialReference>) => {
  const names = new Map(credentials.map((one) => [nameOf(one), one]))
  return { has: (one: CredentialReference) => names.has(nameOf(one)), distinct: Array.from(names.values()) }
}

/** With Citus, the condition that a table's rows are of one account, so that one node runs the statement; else empty. */
type InAccount = (table: string) => Statement.Fragment

/** The credentials whose pools this transaction has locked, and those that it skipped. */
interface LockResult {
  readonly locked: ReadonlyArray<CredentialReference>
  readonly busy: ReadonlyArray<CredentialReference>
}

/**
 * Changes parkings of credentials in one transaction, after locking their pools in the order of the pools' keys. Raises
 * the `health` of the pools of the credentials that `change` returns as `changed`. With `skipLocked`, skips credentials
 * if another transaction has locked them or their pools, and passes them to `change` as `busy`.
 */
export const changeHealth = <A>(
  { distributed, sql }: ConnectionPool,
  credentials: ReadonlyArray<CredentialReference>,
  change: (result: LockResult) => Query<{ readonly changed: ReadonlyArray<CredentialReference>; readonly answer: A }>,
  skipLocked = false
): Query<A> => {
  const columns = sql`credentials.account_id, credentials.id AS credential_id`
  const rowsOf = (references: ReadonlyArray<CredentialReference>, inAccount: InAccount) => sql`
    credentials JOIN ${referencesOf(sql, references)}
    ON credentials.account_id = wanted.account_id AND credentials.id = wanted.credential_id ${inAccount("credentials")}`
  const lock = (references: ReadonlyArray<CredentialReference>, inAccount: InAccount) => sql<CredentialReference>`
    SELECT ${columns} FROM ${rowsOf(references, inAccount)}
    JOIN pools ON ${samePool(sql, "pools", "credentials")} ${inAccount("pools")}
    ORDER BY ${keyColumns(sql, "pools")}
    FOR NO KEY UPDATE OF pools ${skipLocked ? sql`SKIP LOCKED FOR KEY SHARE OF credentials SKIP LOCKED` : sql``}`
  const find = (references: ReadonlyArray<CredentialReference>, inAccount: InAccount) =>
    sql<CredentialReference>`SELECT ${columns} FROM ${rowsOf(references, inAccount)}`
  const raise = (references: ReadonlyArray<CredentialReference>, inAccount: InAccount) => sql<never>`
    UPDATE pools SET health = health + 1
    FROM (SELECT DISTINCT ${keyColumns(sql, "credentials")} FROM ${rowsOf(references, inAccount)}) AS changed
    WHERE ${samePool(sql, "pools", "changed")} ${inAccount("pools")}`

  /** Runs a statement for credentials. With Citus, one for each account, which it names, so that one node runs it. */
  const run = <Row>(
    statement: (references: ReadonlyArray<CredentialReference>, inAccount: InAccount) => Query<ReadonlyArray<Row>>,
    references: ReadonlyArray<CredentialReference>
  ): Query<ReadonlyArray<Row>> => {
    if (references.length === 0) return Effect.succeed([])
    if (!distributed) return statement(references, () => sql``)
    const accounts = Map.groupBy(inLockOrder(nameOf, references), ({ account_id }) => account_id)
    const results = Effect.forEach(accounts, ([account_id, ofAccount]) =>
      statement(ofAccount, (table) => sql`AND ${sql.literal(table)}.account_id = ${account_id}`)
    )
    return Effect.map(results, (rows) => rows.flat())
  }

  return Effect.gen(function* () {
    const { distinct } = setOf(credentials)
    const locked = yield* run(lock, distinct)
    const isLocked = setOf(locked).has
    const skipped = distinct.filter((one) => !isLocked(one))
    const busy = skipLocked ? yield* run(find, skipped) : []
    const { answer, changed } = yield* change({ locked, busy })
    yield* run(raise, changed)
    return answer
  }).pipe(sql.withTransaction)
}

/** The condition that a row of `parked` marks a leaked key. */
export const isLeakMark = (sql: SqlClient.SqlClient) => sql`parked.model = '' AND parked.cause = 'leaked'`

/** Whether a version of a credential's key is marked as leaked. */
export const isMarkedAsLeaked = (
  sql: SqlClient.SqlClient,
  account_id: Statement.Fragment,
  credential_id: Statement.Fragment,
  key_version: Statement.Fragment
) => sql`
  EXISTS (
    SELECT FROM credential_parkings AS parked
    WHERE parked.account_id = ${account_id} AND parked.credential_id = ${credential_id}
    AND parked.key_version = ${key_version} AND ${isLeakMark(sql)}
  )`
