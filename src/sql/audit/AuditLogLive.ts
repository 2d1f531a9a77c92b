import { Array as Arr, Clock, Effect, Layer, Option, Record } from "effect"
import type { Statement } from "effect/sql"
import { type AuditCheckpoint, type AuditEntry, type AuditHead, AuditLog, type ReadEntry } from "../../port/AuditLog.ts"
import { askFirst, askRows, askExists } from "../connection/statements.ts"
import { Database } from "../connection/Database.ts"

/** The `seq` of the newest entry, and the transactions that may still commit an older one. */
interface Horizon {
  readonly newest: bigint | null
  readonly writers: ReadonlyArray<string>
}

/** Limits of the entries to seal or read at a time; `bytes` is their stored, compressed size. */
const page = { entries: 200, bytes: 65_536 }
const checkpointsPerPage = 100

/** Converts the 64-bit integers of a row, its only numbers, to BigInts: a forged entry may have any. */
const withBigInts = <Row extends object>(row: Row) =>
  Record.map(row as Record<string, unknown>, (value) => (typeof value === "number" ? BigInt(value) : value)) as Row

/** The advisory lock of the instance that seals. */
const sealingLock = 0x62796f6b

/** How often to check whether the writers have ended, in milliseconds. */
const pollInterval = 50

export const layer = Layer.effect(
  AuditLog,
  Effect.gen(function* () {
    const { background, reads } = yield* Database
    const { sql } = background

    /** The first matching entries in an order, up to `limit` and about `page.bytes`; at least one if any matches. */
    const firstEntries = (matching: Statement.Fragment, limit = page.entries, order = "seq") => sql`
      SELECT account_id, seq, operation, at, events FROM (
        SELECT *, sum(pg_column_size(events)) OVER (ORDER BY ${sql.literal(order)}) - pg_column_size(events) AS bytes_before
        FROM (
          SELECT account_id, seq, operation, at, events FROM audit_entries WHERE ${matching} ORDER BY ${sql.literal(order)} LIMIT ${limit}
        ) AS next
      ) AS sized WHERE bytes_before < ${page.bytes}`
    const nextEntries = (after: Statement.Fragment, upTo: bigint) =>
      firstEntries(sql`seq > ${after} AND seq <= ${String(upTo)}::bigint`)
    const actorHash = sql`(events -> 0 -> 'actor' ->> 'api_key_hash')`
    /** The time in ISO 8601; as PostgreSQL writes it if it is infinite, for which `to_char` returns null. */
    const isoTime = sql`coalesce(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), at::text) AS at`

    /** Transactions with entries: each locks the table from before its entry gets a `seq` to the transaction's end. */
    const writers = sql`
      SELECT virtualtransaction FROM pg_locks
      WHERE locktype = 'relation' AND relation = 'audit_entries'::regclass AND mode = 'RowExclusiveLock' AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

    /** PostgreSQL reads the locks after the snapshot, so no writer is missed. */
    const horizon = Effect.map(
      askFirst(background, "audit.horizon")<Horizon>`
        SELECT (SELECT max(seq) FROM audit_entries) AS newest, ARRAY(${writers}) AS writers`,
      Option.map(withBigInts)
    )
    /** Whether one of these transactions still runs. */
    const areWriting = (earlier: ReadonlyArray<string>) => askExists(background, "audit.writers")`
      SELECT 1 FROM (${writers}) AS now WHERE virtualtransaction = ANY(${earlier}::text[]) LIMIT 1`

    const head = Effect.map(
      askFirst(background, "audit.head")<AuditHead>`
        SELECT number, last_seq, encode(hash, 'hex') AS hash FROM audit_checkpoints ORDER BY number DESC LIMIT 1`,
      Option.map(withBigInts)
    )

    /** Writes the next checkpoint, unless another instance does. Returns whether this one wrote it. */
    const sealPage = (upTo: bigint) =>
      Effect.gen(function* () {
        const [lock] = yield* sql<{ mine: boolean }>`SELECT pg_try_advisory_xact_lock(${sealingLock}::bigint) AS mine`
        if (lock?.mine !== true) return false
        const inserted = yield* sql`
          INSERT INTO audit_checkpoints (number, last_seq, digests, hash)
          SELECT head.number + 1, next.last_seq, next.digests, sha256(head.hash || next.digests)
          FROM (
            SELECT number, last_seq, hash FROM audit_checkpoints
            UNION ALL SELECT 0, 0, ''
            ORDER BY number DESC LIMIT 1
          ) AS head, LATERAL (
            SELECT max(seq) AS last_seq, string_agg(
              int8send(seq) || sha256(int8send(seq) || timestamptz_send(at) || convert_to(events::text, 'UTF8')),
              '' ORDER BY seq
            ) AS digests
            FROM (${nextEntries(sql`head.last_seq`, upTo)}) AS entries
          ) AS next
          WHERE next.last_seq IS NOT NULL
          ON CONFLICT (number) DO NOTHING RETURNING number`
        return inserted.length > 0
      }).pipe(sql.withTransaction, (query) => background.ask(query, "audit.seal"))

    /** Seals a page at a time up to the newest entry, once the earlier writers have ended. */
    const seal = Effect.fnUntraced(function* (timeout: number) {
      const { newest, writers: earlierWriters } = Option.getOrThrow(yield* horizon)
      const began = yield* Clock.monotonicTimeNanos
      let sealed = yield* head
      while (newest !== null && (Option.isNone(sealed) || sealed.value.last_seq < newest)) {
        const hasSealed = !(yield* areWriting(earlierWriters)) && (yield* sealPage(newest))
        sealed = yield* head
        if (hasSealed) continue
        if (Number((yield* Clock.monotonicTimeNanos) - began) / 1e6 >= timeout) break
        yield* Effect.sleep(pollInterval)
      }
      return sealed
    })

    return {
      seal,
      checkpointOf: (hash) =>
        Effect.map(
          askFirst(reads, "audit.checkpoint")<AuditHead>`
            SELECT number, last_seq, encode(hash, 'hex') AS hash FROM audit_checkpoints
            WHERE hash = decode(${hash}, 'hex') ORDER BY number LIMIT 1`,
          Option.map(withBigInts)
        ),
      checkpoints: (after) =>
        Effect.map(
          askRows(reads, "audit.checkpoints")<AuditCheckpoint>`
            SELECT number, last_seq, digests, encode(hash, 'hex') AS hash FROM audit_checkpoints
            WHERE number > ${String(after)}::bigint ORDER BY number LIMIT ${checkpointsPerPage}`,
          Arr.map(withBigInts)
        ),
      entries: ({ after, upTo }) =>
        Effect.map(
          askRows(reads, "audit.entries")<AuditEntry>`
            SELECT seq, ${isoTime}, timestamptz_send(at) AS stamp, events::text AS events
            FROM (${nextEntries(sql`${String(after)}::bigint`, upTo)}) AS entries ORDER BY seq`,
          Arr.map(withBigInts)
        ),
      read: ({ account_id, after, before, credential_id, limit }) => {
        const order = after === undefined ? "seq DESC" : "seq"
        const matching = sql.and([
          ...(account_id === undefined ? [] : [sql`account_id = ${account_id}`]),
          ...(credential_id === undefined ? [] : [sql`events -> 0 ->> 'credential_id' = ${credential_id}`]),
          ...(before === undefined ? [] : [sql`seq < ${String(before)}::bigint`]),
          ...(after === undefined
            ? []
            : [
                sql`seq > ${String(after)}::bigint`,
                sql`seq <= (SELECT last_seq FROM audit_checkpoints ORDER BY number DESC LIMIT 1)`
              ])
        ])
        const rows = askRows(reads, "audit.read", account_id)<ReadEntry>`
          SELECT seq, operation AS id, ${isoTime}, events::text AS events, api_keys.name AS actor_name
          FROM (${firstEntries(matching, limit, order)}) AS entries
          LEFT JOIN api_keys ON api_keys.account_id = entries.account_id
          AND hash = CASE WHEN ${actorHash} ~ '^[a-f0-9]{64}$' THEN decode(${actorHash}, 'hex') END ORDER BY ${sql.literal(order)}`
        return Effect.map(rows, Arr.map(withBigInts))
      },
      find: (account_id, id) => askFirst(reads, "audit.find", account_id)<{ seq: number; events: number }>`
        SELECT seq, json_array_length(events) AS events FROM audit_entries
        WHERE account_id = ${account_id} AND operation = ${id}`,
      countUnsealed: (limit) => {
        const counted = askRows(background, "audit.unsealed")<{ n: number }>`
          SELECT count(*)::int AS n FROM (
            SELECT FROM audit_entries
            WHERE seq > coalesce((SELECT last_seq FROM audit_checkpoints ORDER BY number DESC LIMIT 1), 0)
            ORDER BY seq LIMIT ${sql.literal(limit === undefined ? "ALL" : String(limit))}
          ) AS waiting`
        return Effect.map(counted, ([row]) => row?.n ?? 0)
      }
    }
  })
)
