import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import type { CredentialId, CredentialReference } from "../../domain/Identifiers.ts"
import type { Parking } from "../../domain/routing/CredentialStatus.ts"
import { cooldownCauseOf, isBlamed, longestCooldown, sweptAfter, wholeKey } from "../../domain/routing/Health.ts"
import { type ParkingChange, Parkings } from "../../port/Parkings.ts"
import { recordEach } from "../audit/auditing.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { Database } from "../connection/Database.ts"
import { inLockOrder } from "../connection/statements.ts"
import { type Recorded, recordedColumns, recordedOf } from "../rows/credentialRows.ts"
import { changeHealth, referencesOf, setOf } from "../rows/parkingRows.ts"

/** The changes as rows `change`. */
const rowsOf = (sql: SqlClient.SqlClient, changes: ReadonlyArray<ParkingChange>) => sql`
  unnest(
    ${changes.map(({ account_id }) => account_id)}::uuid[],
    ${changes.map(({ credential_id }) => credential_id)}::uuid[],
    ${changes.map(({ model }) => model)}::text[],
    ${changes.map(({ key_version }) => key_version)}::bigint[],
    ${changes.map(({ epoch }) => epoch)}::bigint[],
    ${changes.map(({ cause }) => cause ?? "succeeded")}::text[],
    ${changes.map(({ strikes }) => strikes)}::integer[],
    ${changes.map(({ remaining }) => remaining ?? 0)}::double precision[]
  ) AS change (account_id, credential_id, model, key_version, epoch, cause, strikes, remaining)`

/** Names the parking of a change, which is unique by credential and model. */
const parkingName = ({ account_id, credential_id, model }: ParkingChange) => `${account_id} ${credential_id} ${model}`

/** A stored parking. */
type Stored = CredentialReference &
  Pick<ParkingChange, "model" | "key_version" | "strikes"> & {
    readonly cause: string
    readonly parked_at: Date
    /** Whether the parking is still in force; null without an end. */
    readonly in_force: boolean | null
  }

/**
 * Records an event for each key that providers began to refuse or to accept again, given the parkings before the
 * change, and the changed ones after it. While a key is parked for one model, the same refusal for another model
 * records nothing, unless the key recovered in between.
 */
const recordChanges = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  before: ReadonlyArray<Stored>,
  after: ReadonlyArray<Stored>
) {
  const nameOf = ({ account_id, credential_id, key_version }: Stored) => `${account_id} ${credential_id} ${key_version}`
  const parkingsOfKey = Map.groupBy(before, nameOf)
  const changes = after.flatMap((stored) => {
    const { account_id, cause, credential_id, key_version, model } = stored
    const parkings = parkingsOfKey.get(nameOf(stored)) ?? []
    const others = parkings.filter((one) => one.model !== model)
    const previous = parkings.find((one) => one.model === model)
    parkingsOfKey.set(nameOf(stored), [...others, stored])
    const recoveries = others.filter((one) => one.cause === "succeeded")
    const lastRecovery = Math.max(...recoveries.map((one) => one.parked_at.getTime()))
    const isRecordedForAnother = others.some(
      (one) => one.cause === cause && isBlamed(one) && one.in_force && one.parked_at.getTime() >= lastRecovery
    )
    const blamed = previous !== undefined && isBlamed(previous) ? previous : undefined
    const subject = { account_id, credential_id, key_version, model: model === wholeKey ? null : model }
    const isNewRefusal = isBlamed(stored) && blamed?.cause !== cause && !isRecordedForAnother
    const refusal = isNewRefusal ? stored.cause : cause === "succeeded" ? blamed?.cause : undefined
    if (refusal === undefined) return []
    const action = isNewRefusal ? ("credential.rejected" as const) : ("credential.recovered" as const)
    return [{ action, ...subject, cause: refusal }]
  })
  if (changes.length === 0) return
  const rows = yield* sql<Recorded>`
    SELECT ${sql.csv(recordedColumns.map((column) => sql`credentials.${sql(column)}`))} FROM credentials
    JOIN ${referencesOf(sql, setOf(changes).distinct)}
    ON credentials.account_id = wanted.account_id AND credentials.id = wanted.credential_id`
  const recorded = new Map(rows.map((row) => [`${row.account_id} ${row.id}`, row]))
  yield* recordEach(
    sql,
    changes.flatMap(({ account_id, credential_id, ...change }) => {
      const row = recorded.get(`${account_id} ${credential_id}`)
      return row === undefined ? [] : [{ ...change, ...recordedOf(row) }]
    }),
    (act) => act
  )
})

/**
 * Deletes parkings of the changed credentials that have long expired or are of a replaced key, and then merges the
 * changes into the rest, so that no expired parking wins over a change. A change replaces a parking of an older key
 * version, or one of the same version that marks no leak and is smaller by epoch, then end, then strikes. Records
 * refusals and recoveries of keys; returns the deleted and the merged parkings.
 */
const sweepAndMerge = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, changes: ReadonlyArray<ParkingChange>) {
  const sorted = inLockOrder(parkingName, changes)
  const before = yield* sql<Stored>`
    SELECT parked.account_id, parked.credential_id, model, key_version, strikes, cause, parked_at, until > now() AS in_force
    FROM credential_parkings AS parked
    JOIN ${referencesOf(sql, setOf(sorted).distinct)}
    ON parked.account_id = wanted.account_id AND parked.credential_id = wanted.credential_id`
  const swept = yield* sql<CredentialReference>`
    DELETE FROM credential_parkings AS parked USING credentials
    WHERE (parked.account_id, parked.credential_id) IN (
      SELECT change.account_id, change.credential_id FROM ${rowsOf(sql, sorted)}
    )
    AND credentials.account_id = parked.account_id AND credentials.id = parked.credential_id
    AND (parked.key_version < credentials.key_version
      OR (parked.cause <> 'leaked'
        AND greatest(parked.until, parked.parked_at) < now() - ${sweptAfter}::double precision * interval '1 millisecond'))
    RETURNING parked.account_id, parked.credential_id`
  const merged = yield* sql<Stored>`
    INSERT INTO credential_parkings AS parked
      (account_id, credential_id, model, key_version, epoch, cause, strikes, until, parked_at)
    SELECT credentials.account_id, credentials.id, change.model, change.key_version, change.epoch, change.cause, change.strikes,
      CASE WHEN change.cause <> 'succeeded'
        THEN now() + least(change.remaining, ${longestCooldown}::double precision) * interval '1 millisecond' END,
      now()
    FROM ${rowsOf(sql, sorted)}
    JOIN credentials ON credentials.account_id = change.account_id AND credentials.id = change.credential_id
    AND credentials.key_version = change.key_version
    ON CONFLICT (account_id, credential_id, model) DO UPDATE
    SET key_version = excluded.key_version, epoch = excluded.epoch, cause = excluded.cause, strikes = excluded.strikes,
      until = excluded.until, parked_at = excluded.parked_at
    WHERE parked.key_version < excluded.key_version
    OR (parked.key_version = excluded.key_version AND parked.cause <> 'leaked'
      AND (parked.epoch, coalesce(parked.until, '-infinity'), parked.strikes)
        < (excluded.epoch, coalesce(excluded.until, '-infinity'), excluded.strikes))
    RETURNING parked.account_id, parked.credential_id, parked.model, parked.key_version, parked.strikes, parked.cause,
      parked.parked_at,
      parked.until > now() AS in_force`
  yield* recordChanges(sql, before, merged)
  return [...merged, ...swept]
})

/** Merges changes, and returns those that it skipped because another transaction has locked their credentials. */
const mergeUnlocked = (pool: ConnectionPool, changes: ReadonlyArray<ParkingChange>) =>
  changeHealth(
    pool,
    changes,
    Effect.fnUntraced(function* ({ busy, locked }) {
      const mergeable = changes.filter(setOf(locked).has)
      const changed = mergeable.length > 0 ? yield* sweepAndMerge(pool.sql, mergeable) : []
      return { changed, answer: changes.filter(setOf(busy).has) }
    }),
    true
  )

interface Row {
  readonly credential_id: CredentialId
  readonly model: string
  readonly cause: string
  readonly parked_at: Date
  readonly until: Date | null
}

const parkingOf = ({ cause, model, parked_at, until }: Row): Parking => ({
  model: model === wholeKey ? null : model,
  cause: cause === "leaked" ? cause : cooldownCauseOf(cause),
  since: parked_at.getTime(),
  until: until?.getTime() ?? null
})

export const layer = Layer.effect(
  Parkings,
  Effect.map(Database, ({ background, reads }) => ({
    store: (changes) => {
      // With Citus, a statement must name one account.
      const batches = background.distributed ? Map.groupBy(changes, ({ account_id }) => account_id).values() : [changes]
      return Effect.forEach(batches, (batch) =>
        background.ask(mergeUnlocked(background, batch), "parkings.store")
      ).pipe(Effect.map((skipped) => skipped.flat()))
    },
    find: (account_id, ids) => {
      const rows = reads.sql<Row>`
        SELECT parked.credential_id, parked.model, parked.cause, parked.parked_at, parked.until
        FROM credential_parkings AS parked JOIN credentials
        ON credentials.account_id = parked.account_id AND credentials.id = parked.credential_id
        AND credentials.key_version = parked.key_version
        WHERE parked.account_id = ${account_id} AND parked.credential_id = ANY(${ids}::uuid[])
        AND (parked.cause = 'leaked' OR parked.until > now()) ORDER BY parked.model`
      return Effect.map(reads.ask(rows, "parkings.find", account_id), (parkings) => {
        const groups = Map.groupBy(parkings, ({ credential_id }) => credential_id)
        return new Map(Array.from(groups, ([id, rows]) => [id, rows.map(parkingOf)]))
      })
    }
  }))
)
