import { Effect, Layer, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { CredentialId } from "../../domain/Identifiers.ts"
import type { FoundKey } from "../../port/LeakedKeys.ts"
import type { Withheld } from "../../domain/routing/CredentialStatus.ts"
import { longestPause, pauseCauseOf, sweptAfter, wholeKey } from "../../domain/routing/Health.ts"
import { type ParkingChange, Parkings } from "../../port/Parkings.ts"
import { recordEach } from "../audit/auditing.ts"
import { Database } from "../connection/Database.ts"
import { inLockOrder } from "../connection/rowOrder.ts"

/** The condition that a row of `parked` is the mark of a leaked key. */
export const markOf = (sql: SqlClient.SqlClient) => sql`parked.model = '' AND parked.cause = 'leaked'`

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
    AND parked.key_version = ${key_version} AND ${markOf(sql)}
  )`

/** The changes as rows `given`. */
const rowsOf = (sql: SqlClient.SqlClient, changes: ReadonlyArray<ParkingChange>) => sql`
  unnest(
    ${changes.map(({ account_id }) => account_id)}::uuid[],
    ${changes.map(({ credential_id }) => credential_id)}::uuid[],
    ${changes.map(({ model }) => model)}::text[],
    ${changes.map(({ key_version }) => key_version)}::integer[],
    ${changes.map(({ epoch }) => epoch)}::integer[],
    ${changes.map(({ cause }) => cause ?? "succeeded")}::text[],
    ${changes.map(({ strikes }) => strikes)}::integer[],
    ${changes.map(({ remaining }) => remaining ?? 0)}::double precision[]
  ) AS given (account_id, credential_id, model, key_version, epoch, cause, strikes, remaining)`

const nameOf = ({ account_id, credential_id, model }: ParkingChange) => `${account_id} ${credential_id} ${model}`

const storeAll = (sql: SqlClient.SqlClient, changes: ReadonlyArray<ParkingChange>) => {
  const sorted = inLockOrder(nameOf, changes)
  const join = sql`
    INSERT INTO credential_parkings AS parked
      (account_id, credential_id, model, key_version, epoch, cause, strikes, until, parked_at)
    SELECT credentials.account_id, credentials.id, given.model, given.key_version, given.epoch, given.cause, given.strikes,
      CASE WHEN given.cause <> 'succeeded'
        THEN now() + least(given.remaining, ${longestPause}::double precision) * interval '1 millisecond' END,
      now()
    FROM ${rowsOf(sql, sorted)}
    JOIN credentials ON credentials.account_id = given.account_id AND credentials.id = given.credential_id
    AND credentials.key_version = given.key_version
    ON CONFLICT (account_id, credential_id, model) DO UPDATE
    SET key_version = excluded.key_version, epoch = excluded.epoch, cause = excluded.cause, strikes = excluded.strikes,
      until = excluded.until, parked_at = excluded.parked_at
    WHERE parked.key_version < excluded.key_version
    OR (parked.key_version = excluded.key_version AND parked.cause <> 'leaked'
      AND (parked.epoch, coalesce(parked.until, '-infinity'), parked.strikes)
        < (excluded.epoch, coalesce(excluded.until, '-infinity'), excluded.strikes))`
  const sweep = sql`
    DELETE FROM credential_parkings AS parked USING credentials
    WHERE (parked.account_id, parked.credential_id) IN (
      SELECT given.account_id, given.credential_id FROM ${rowsOf(sql, sorted)}
    )
    AND credentials.account_id = parked.account_id AND credentials.id = parked.credential_id
    AND (parked.key_version < credentials.key_version
      OR (parked.cause <> 'leaked'
        AND greatest(parked.until, parked.parked_at) < now() - ${sweptAfter}::double precision * interval '1 millisecond'))`
  return Effect.andThen(join, sweep)
}

/** A parking as the driver reads it. */
interface Row {
  readonly credential_id: CredentialId
  readonly model: string
  readonly cause: string
  readonly parked_at: Date
  readonly until: Date | null
}

const withheldOf = ({ cause, model, parked_at, until }: Row): Withheld => ({
  model: model === wholeKey ? null : model,
  cause: cause === "leaked" ? cause : pauseCauseOf(cause),
  since: parked_at.getTime(),
  until: until?.getTime() ?? null
})

export const layer = Layer.effect(
  Parkings,
  Effect.map(Database, ({ background, reads, writes: { ask, sql } }) => ({
    store: (changes) => background.ask(storeAll(background.sql, changes), "parkings.store"),
    clear: (account_id, id) =>
      Effect.gen(function* () {
        const [key] = yield* sql<FoundKey>`
          SELECT account_id, workspace_id, id AS credential_id, key_version FROM credentials
          WHERE account_id = ${account_id} AND id = ${id} FOR SHARE`
        if (key === undefined) return Option.none()
        const ended = yield* sql`
          UPDATE credential_parkings AS parked SET cause = 'succeeded', parked_at = now()
          WHERE account_id = ${account_id} AND credential_id = ${id} AND key_version = ${key.key_version}
          AND ${markOf(sql)} RETURNING 1`
        yield* recordEach(sql, ended, () => ({ action: "credential.unpark", ...key }))
        return Option.some(key)
      }).pipe(sql.withTransaction, (query) => ask(query, "parkings.clear")),
    withheld: (account_id, ids) => {
      const rows = reads.sql<Row>`
        SELECT parked.credential_id, parked.model, parked.cause, parked.parked_at, parked.until
        FROM credential_parkings AS parked JOIN credentials
        ON credentials.account_id = parked.account_id AND credentials.id = parked.credential_id
        AND credentials.key_version = parked.key_version
        WHERE parked.account_id = ${account_id} AND parked.credential_id = ANY(${ids}::uuid[])
        AND (parked.cause = 'leaked' OR parked.until > now()) ORDER BY parked.model`
      return Effect.map(reads.ask(rows, "parkings.withheld"), (found) => {
        const groups = Map.groupBy(found, ({ credential_id }) => credential_id)
        return new Map(Array.from(groups, ([id, rows]) => [id, rows.map(withheldOf)]))
      })
    }
  }))
)
