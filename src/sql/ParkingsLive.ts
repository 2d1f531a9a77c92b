import { Effect, Layer, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { FoundKey } from "../port/LeakedKeys.ts"
import { type ParkingChange, Parkings } from "../port/Parkings.ts"
import { record } from "./auditing.ts"
import { Database } from "./connection/Database.ts"
import { inLockOrder } from "./rowOrder.ts"

/** The marks that keys have leaked, among the parkings `parked`. */
const marks = (sql: SqlClient.SqlClient) => sql`parked.model = '' AND parked.cause = 'leaked'`

/** Whether the key of this version of a credential is marked as leaked. */
export const isMarked = (
  sql: SqlClient.SqlClient,
  account_id: Statement.Fragment,
  credential_id: Statement.Fragment,
  key_version: Statement.Fragment
) => sql`
  EXISTS (
    SELECT FROM credential_parkings AS parked
    WHERE parked.account_id = ${account_id} AND parked.credential_id = ${credential_id}
    AND parked.key_version = ${key_version} AND ${marks(sql)}
  )`

/** The changes as rows `given`. */
const rowsOf = (sql: SqlClient.SqlClient, changes: ReadonlyArray<ParkingChange>) => sql`
  unnest(
    ${changes.map(({ account_id }) => account_id)}::uuid[],
    ${changes.map(({ credential_id }) => credential_id)}::uuid[],
    ${changes.map(({ model }) => model)}::text[],
    ${changes.map(({ key_version }) => key_version)}::integer[],
    ${changes.map(({ cause }) => cause)}::text[],
    ${changes.map(({ strikes }) => strikes)}::integer[],
    ${changes.map(({ until }) => new Date(until).toISOString())}::timestamptz[]
  ) AS given (account_id, credential_id, model, key_version, cause, strikes, until)`

const storeAll = (sql: SqlClient.SqlClient, changes: ReadonlyArray<ParkingChange>) => {
  const sorted = inLockOrder(
    ({ account_id, credential_id, model }) => `${account_id} ${credential_id} ${model}`,
    changes
  )
  const begun = sorted.filter(({ ended }) => !ended)
  const over = sorted.filter(({ ended }) => ended)
  const ofPresentKeys = sql`
    JOIN credentials ON credentials.account_id = given.account_id AND credentials.id = given.credential_id
    AND credentials.key_version = given.key_version`
  const begin = sql`
    INSERT INTO credential_parkings AS parked
      (account_id, credential_id, model, key_version, cause, strikes, until, parked_at)
    SELECT given.account_id, given.credential_id, given.model, given.key_version, given.cause, given.strikes, given.until,
      now()
    FROM ${rowsOf(sql, begun)} ${ofPresentKeys}
    ON CONFLICT (account_id, credential_id, model) DO UPDATE
    SET key_version = excluded.key_version, cause = excluded.cause, strikes = excluded.strikes, until = excluded.until,
      parked_at = excluded.parked_at
    WHERE parked.key_version < excluded.key_version
    OR (parked.key_version = excluded.key_version AND parked.until < excluded.until)`
  const forget = sql`
    DELETE FROM credential_parkings AS parked USING ${rowsOf(sql, begun)} ${ofPresentKeys}
    WHERE parked.account_id = given.account_id AND parked.credential_id = given.credential_id
    AND parked.key_version < given.key_version`
  const end = sql`
    DELETE FROM credential_parkings AS parked USING ${rowsOf(sql, over)}
    WHERE parked.account_id = given.account_id AND parked.credential_id = given.credential_id
    AND parked.model = given.model AND parked.key_version = given.key_version AND parked.until <= given.until`
  const statements = [...(begun.length === 0 ? [] : [begin, forget]), ...(over.length === 0 ? [] : [end])]
  return Effect.all(statements, { discard: true })
}

export const layer = Layer.effect(
  Parkings,
  Effect.map(Database, ({ background, writes: { ask, sql } }) => ({
    store: (changes) => background.ask(storeAll(background.sql, changes), "parkings.store"),
    clear: (account_id, id) =>
      Effect.gen(function* () {
        const [key] = yield* sql<FoundKey>`
          SELECT account_id, workspace_id, id AS credential_id, key_version FROM credentials
          WHERE account_id = ${account_id} AND id = ${id} FOR SHARE`
        if (key === undefined) return Option.none()
        const ended = yield* sql`
          DELETE FROM credential_parkings AS parked
          WHERE account_id = ${account_id} AND credential_id = ${id} AND key_version = ${key.key_version}
          AND ${marks(sql)} RETURNING 1`
        yield* record(sql, ended.length === 0 ? [] : [{ action: "credential.unpark", ...key }])
        return Option.some(key)
      }).pipe(sql.withTransaction, (query) => ask(query, "parkings.clear"))
  }))
)
