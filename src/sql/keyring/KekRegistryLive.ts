import { randomUUID } from "node:crypto"
import { hostname } from "node:os"
import { DateTime, Effect, Layer, Option } from "effect"
import type { SqlClient } from "effect/sql"
import { countLimit } from "../../port/AuditLog.ts"
import { KekRegistry, type NamingCredential, type RegisteredKey, type SealPermission } from "../../port/KekRegistry.ts"
import { recordEach, recordOnce } from "../audit/auditing.ts"
import { Database } from "../connection/Database.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { failureOf } from "../connection/DatabaseErrors.ts"
import { askRows } from "../connection/statements.ts"
import { rewrapBatch } from "./rewrapBatch.ts"

interface KekRow {
  readonly kek_id: string
  readonly check_value: Uint8Array
  readonly retired: boolean
}

/** How long an attempt to retire a key may wait for each table, blocking other statements, and how often to try. */
const retirement = { lockTimeout: "100ms", attempts: 100, pause: "200 millis" } as const

const lockedTooLong = new DatabaseFailure({ kind: "LockTimeout", sqlstate: "55P03", constraint: undefined })

/** The ids of the keys that credentials or links name. Steps from id to id in credentials' index; links are few. */
const namedKeks = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const ids: Array<string> = []
    const linked = yield* sql<{ id: string }>`SELECT DISTINCT kek_id AS id FROM links WHERE kek_id IS NOT NULL`
    for (;;) {
      const [next] = yield* sql<{ id: string | null }>`
        SELECT min(kek_id) AS id FROM credentials WHERE kek_id > ${ids.at(-1) ?? ""}`
      if (typeof next?.id !== "string") return Array.from(new Set([...ids, ...linked.map(({ id }) => id)]))
      ids.push(next.id)
    }
  })

/**
 * Counts the credentials and links that name a key, up to `limit`; the registry reports both as credentials. BETWEEN
 * makes PostgreSQL use the index, unlike an equality.
 */
const countNaming = (sql: SqlClient.SqlClient, kek_id: string, limit?: number) => {
  const limitOrAll = sql.literal(limit === undefined ? "ALL" : String(limit))
  return Effect.map(
    sql<{ n: number }>`
      SELECT count(*)::int AS n FROM (
        (SELECT 1 FROM credentials WHERE kek_id BETWEEN ${kek_id} AND ${kek_id} ORDER BY kek_id LIMIT ${limitOrAll})
        UNION ALL (SELECT 1 FROM links WHERE kek_id = ${kek_id}) LIMIT ${limitOrAll}
      ) AS naming`,
    ([row]) => row?.n ?? 0
  )
}

interface RegisteredRow {
  readonly kek_id: string
  readonly wraps: number
  readonly registered_at: Date | null
}
interface UsageRow extends RegisteredRow {
  readonly retired: boolean
}

const registeredKey = ({ kek_id, registered_at, wraps }: RegisteredRow): RegisteredKey => ({
  kek_id,
  wraps,
  ...(registered_at === null ? {} : { registered_at: DateTime.fromDateUnsafe(registered_at) })
})

/** The count for the list, which goes only up to `countLimit`. */
const capped = (credentials: number) =>
  credentials > countLimit ? { credentials: countLimit, more_credentials: true as const } : { credentials }

export const layer = Layer.effect(
  KekRegistry,
  Effect.gen(function* () {
    const { background, reads, writes } = yield* Database
    const instance = { id: randomUUID(), name: `${hostname()}:${process.pid}` }
    const selectKeks = (ids: ReadonlyArray<string>) => writes.sql<KekRow>`
      SELECT id AS kek_id, check_value, retired_at IS NOT NULL AS retired FROM keks WHERE id = ANY(${ids}::text[])`
    const insert = ({ check_value, kek_id }: Omit<KekRow, "retired">) => writes.sql<{ kek_id: string }>`
      INSERT INTO keks (id, check_value) VALUES (${kek_id}, ${check_value})
      ON CONFLICT (id) DO NOTHING RETURNING id AS kek_id`
    /**
     * A key may seal if it has sealed before, if no live key has, or if a live key of the keyring `kek_ids` has. A key
     * with reserved wraps counts as having sealed; a live key is one that is not retired.
     */
    const maySeal = (sql: SqlClient.SqlClient, kek_ids: ReadonlyArray<string>) => sql`(
      wraps > 0
      OR NOT EXISTS (SELECT FROM keks WHERE wraps > 0 AND retired_at IS NULL)
      OR EXISTS (SELECT FROM keks WHERE wraps > 0 AND retired_at IS NULL AND id = ANY(${kek_ids}::text[]))
    )`
    const sealPermission = (kek_id: string, kek_ids: ReadonlyArray<string>) =>
      Effect.map(
        reads.sql<{ permission: SealPermission }>`
          SELECT CASE
            WHEN retired_at IS NOT NULL THEN 'retired'
            WHEN ${maySeal(reads.sql, kek_ids)} THEN 'seals'
            ELSE 'foreign'
          END AS permission FROM keks WHERE id = ${kek_id}`,
        ([row]) => row?.permission ?? "foreign"
      )
    /**
     * Reserves wraps of a key. Returns how many have been reserved so far, or none if it may not seal. Locks `keks`
     * before the first use of a key: of two new keys in disjoint keyrings, only one may begin to seal.
     */
    const reserve = Effect.fnUntraced(function* (kek_id: string, kek_ids: ReadonlyArray<string>, count: number) {
      const { sql } = writes
      const [used] = yield* sql`SELECT 1 FROM keks WHERE id = ${kek_id} AND wraps > 0`
      if (used === undefined) yield* sql`LOCK TABLE keks IN SHARE ROW EXCLUSIVE MODE`
      const [reserved] = yield* sql<{ wraps: number }>`
        UPDATE keks SET wraps = wraps + ${count} WHERE id = ${kek_id} AND ${maySeal(sql, kek_ids)}
        RETURNING wraps::float8 AS wraps`
      return Option.map(Option.fromUndefinedOr(reserved), ({ wraps }) => wraps)
    })

    const count = (kek_id: string) => writes.probe(countNaming(writes.sql, kek_id), "keks.count")

    /**
     * Retires or reinstates a key: replaces the constraints of `credentials` and `links` that refuse rows with a
     * retired key. Returns false, without a change, if running transactions keep either table locked for too long.
     */
    const setRetired = Effect.fnUntraced(
      function* (kek_id: string, retired: boolean) {
        const { sql } = writes
        yield* sql`LOCK TABLE keks IN SHARE ROW EXCLUSIVE MODE`
        const changed = yield* sql`
          UPDATE keks SET retired_at = CASE WHEN ${retired} THEN now() END
          WHERE id = ${kek_id} AND (retired_at IS NULL) = ${retired} RETURNING id`
        yield* recordEach(sql, changed, () => ({ action: retired ? "keyring.retire" : "keyring.reinstate", kek_id }))
        const rows = yield* sql<{ id: string }>`SELECT id FROM keks WHERE retired_at IS NOT NULL ORDER BY id`
        yield* sql.unsafe(`SET LOCAL lock_timeout = '${retirement.lockTimeout}'`)
        for (const table of ["credentials", "links"]) {
          yield* sql.unsafe(`ALTER TABLE ${table} DROP CONSTRAINT IF EXISTS ${table}_kek_retired`)
          yield* sql.unsafe(`ALTER TABLE ${table} ADD CONSTRAINT ${table}_kek_retired
            CHECK (kek_id <> ALL ('{${rows.map(({ id }) => `"${id}"`).join()}}'::text[])) NOT VALID`)
        }
        return true
      },
      (change) =>
        writes.sql.withTransaction(change).pipe(
          Effect.catchIf(
            (error) => failureOf(error).sqlstate === lockedTooLong.sqlstate,
            () => Effect.succeed(false)
          ),
          (query) => writes.probe(query, "keks.fence")
        )
    )
    const setRetiredWithRetry = Effect.fnUntraced(function* (kek_id: string, retired: boolean) {
      for (let attempt = 1; !(yield* setRetired(kek_id, retired)); attempt++) {
        if (attempt === retirement.attempts) return yield* lockedTooLong
        yield* Effect.sleep(retirement.pause)
      }
    })

    const { sql } = background
    return {
      announce: (kek_ids) =>
        Effect.asVoid(
          background.probe(
            Effect.andThen(
              sql`DELETE FROM keyring_instances WHERE seen_at < now() - interval '1 hour'`,
              sql`
                INSERT INTO keyring_instances (id, name, kek_ids, seen_at)
                VALUES (${instance.id}, ${instance.name}, ${kek_ids}::text[], now())
                ON CONFLICT (id) DO UPDATE SET kek_ids = excluded.kek_ids, seen_at = excluded.seen_at`
            ),
            "keyring_instances.announce"
          )
        ),
      withdraw: Effect.asVoid(
        background.probe(sql`DELETE FROM keyring_instances WHERE id = ${instance.id}`, "keyring_instances.withdraw")
      ),
      instancesLacking: (kek_id) =>
        Effect.map(
          background.probe(
            sql<{ name: string }>`
              SELECT name FROM keyring_instances
              WHERE seen_at BETWEEN now() - interval '1 minute' AND now() AND ${kek_id} <> ALL (kek_ids) ORDER BY name`,
            "keyring_instances.lacking"
          ),
          (rows) => rows.map(({ name }) => name)
        ),
      find: (kek_ids) => writes.probe(selectKeks(kek_ids), "keks.known"),
      sealPermission: (kek_id, kek_ids) => reads.probe(sealPermission(kek_id, kek_ids), "keks.seal_permission"),
      reserve: (kek_id, kek_ids, count) =>
        writes.ask(writes.sql.withTransaction(reserve(kek_id, kek_ids, count)), "keks.reserve"),
      admit: (kek_id) =>
        Effect.gen(function* () {
          const { sql } = writes
          // With a wrap, the key counts as having sealed, which lets it seal.
          const admitted = yield* sql`
            UPDATE keks SET wraps = 1 WHERE id = ${kek_id} AND wraps = 0 AND retired_at IS NULL RETURNING id`
          yield* recordEach(sql, admitted, () => ({ action: "keyring.admit", kek_id }))
        }).pipe(writes.sql.withTransaction, (query) => writes.probe(query, "keks.admit")),
      recordPromotion: Effect.fnUntraced(function* (kek_id) {
        const { probe, sql } = writes
        // Only the audit log records promotions.
        yield* probe(recordOnce(sql, randomUUID(), { action: "keyring.promote", kek_id }), "keks.promote")
      }),
      retire: Effect.fnUntraced(function* (kek_id) {
        const naming = yield* count(kek_id)
        if (naming > 0) return naming
        yield* setRetiredWithRetry(kek_id, true)
        // Rows may have named the key between the count and the constraint.
        const namedMeanwhile = yield* count(kek_id)
        if (namedMeanwhile > 0) yield* setRetiredWithRetry(kek_id, false)
        return namedMeanwhile
      }),
      register: Effect.fnUntraced(function* (keks) {
        const ids = keks.map(({ kek_id }) => kek_id)
        const conflictsIn = (rows: ReadonlyArray<KekRow>) =>
          keks
            .filter(({ check_value, kek_id }) =>
              rows.some((row) => row.kek_id === kek_id && Buffer.compare(row.check_value, check_value) !== 0)
            )
            .map(({ kek_id }) => kek_id)
        const registered = yield* writes.probe(selectKeks(ids), "keks.known")
        const conflicts = conflictsIn(registered)
        if (conflicts.length > 0 || registered.length === new Set(ids).size) return conflicts
        const insertMissing = Effect.gen(function* () {
          yield* writes.sql`LOCK TABLE keks IN SHARE ROW EXCLUSIVE MODE`
          const conflicts = conflictsIn(yield* selectKeks(ids))
          if (conflicts.length > 0) return conflicts
          const inserted = (yield* Effect.forEach(keks, insert)).flat()
          yield* recordEach(writes.sql, inserted, ({ kek_id }) => ({ action: "keyring.register", kek_id }))
          return conflicts
        })
        return yield* writes.probe(writes.sql.withTransaction(insertMissing), "keks.register")
      }),
      rewrapBatch: rewrapBatch(writes),
      list: reads.ask(
        Effect.gen(function* () {
          const { sql } = reads
          const rows = yield* sql<UsageRow>`
            SELECT id AS kek_id, wraps::float8 AS wraps, retired_at IS NOT NULL AS retired, registered_at FROM keks`
          const byId = new Map(rows.map((row) => [row.kek_id, row]))
          const named = yield* namedKeks(sql)
          const ids = Array.from(new Set([...named, ...byId.keys()])).sort()
          return yield* Effect.forEach(ids, (kek_id) =>
            Effect.map(countNaming(sql, kek_id, countLimit + 1), (credentials) => {
              const { retired, ...row } = byId.get(kek_id) ?? { kek_id, wraps: 0, retired: false, registered_at: null }
              return { ...registeredKey(row), ...capped(credentials), retired }
            })
          )
        }),
        "keks.list"
      ),
      live: Effect.map(
        askRows(reads, "keks.live")<RegisteredRow>`
          SELECT id AS kek_id, wraps::float8 AS wraps, registered_at FROM keks WHERE retired_at IS NULL`,
        (rows) => rows.map(registeredKey)
      ),
      countExcept: (kek_ids, limit) =>
        reads.probe(
          Effect.flatMap(namedKeks(reads.sql), (named) =>
            Effect.forEach(
              named.filter((id) => !kek_ids.includes(id)),
              (kek_id) => Effect.map(countNaming(reads.sql, kek_id, limit), (credentials) => ({ kek_id, credentials }))
            )
          ),
          "keks.missing"
        ),
      findNaming: (kek_ids, limit) => askRows(reads, "keks.naming")<NamingCredential>`
        SELECT kek_id, account_id, workspace_id, id AS credential_id FROM credentials
        WHERE kek_id = ANY(${kek_ids}::text[]) ORDER BY kek_id, id LIMIT ${limit}`
    }
  })
)
