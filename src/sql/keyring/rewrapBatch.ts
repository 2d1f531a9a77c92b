import { Array as Arr, Effect, Record, Result } from "effect"
import type { SealedKey, SealingContext } from "../../domain/SealedKey.ts"
import type { KekRegistry } from "../../port/KekRegistry.ts"
import { record } from "../audit/auditing.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { bytesOf, contextColumns, pageBytes } from "../credentials/credentialRows.ts"
import { type CredentialKey, cursorOf, keyOf, keyOfAll, lowest } from "../connection/rowOrder.ts"

/** How many rows one statement scans at most, however few of them name another key. */
const scanLimit = 10_000

const highest = keyOfAll("ffffffff-ffff-ffff-ffff-ffffffffffff")

/** How many DEKs are rewrapped at a time, for slow key stores. */
const concurrency = 16

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")

/** Rewraps the data keys of one batch of credentials in one transaction, with one audit event. */
export const rewrapBatch = ({ ask, distributed, sql }: ConnectionPool): KekRegistry["Service"]["rewrapBatch"] => {
  const columns = sql.csv(contextColumns)

  /** Citus moves no `ctid` and locks no rows of several nodes; `wrapped_dek` tells whether a row has changed meanwhile. */
  const place = distributed
    ? sql`WHERE true`
    : sql`, LATERAL (
        SELECT ctid FROM credentials WHERE account_id = rewrapped.account_id AND id = rewrapped.id OFFSET 0
      ) AS place WHERE credentials.ctid = place.ctid`

  return ({ after, primary, size }, rewrap) =>
    Effect.gen(function* () {
      const from = after === undefined ? lowest : keyOf(after)
      const [end] = yield* sql<CredentialKey>`
        SELECT account_id, id FROM credentials WHERE (account_id, id) > (${from.account_id}::uuid, ${from.id}::uuid)
        ORDER BY account_id, id OFFSET ${scanLimit - 1} LIMIT 1`
      const upTo = end ?? highest
      const range = sql`(account_id, id) > (${from.account_id}::uuid, ${from.id}::uuid)
        AND (account_id, id) <= (${upTo.account_id}::uuid, ${upTo.id}::uuid) AND kek_id <> ${primary}`
      const [next] = yield* sql<{ fitting: number; all: number }>`
        SELECT count(*) FILTER (WHERE bytes <= ${pageBytes})::int AS fitting, count(*)::int AS "all" FROM (
          SELECT sum(bytes) OVER (ORDER BY account_id, id) AS bytes FROM (
            SELECT account_id, id, ${bytesOf(sql)} AS bytes FROM credentials
            WHERE ${range} ORDER BY account_id, id LIMIT ${size}
          ) AS next
        ) AS read`
      const limit = next === undefined || next.fitting === next.all ? size : Math.max(1, next.fitting)
      const rows = yield* sql<SealingContext & SealedKey>`
        SELECT ${columns}, kek_id, wrapped_dek, substring(sealed FOR 2) AS sealed FROM credentials
        WHERE ${range} ORDER BY account_id, id LIMIT ${limit} ${distributed ? sql`` : sql`FOR UPDATE SKIP LOCKED`}`
      const attempt = yield* Effect.result(
        Effect.forEach(
          rows,
          ({ kek_id, sealed, wrapped_dek, ...context }) =>
            Effect.map(
              rewrap({ kek_id, sealed, wrapped_dek }, context),
              Result.mapBoth({
                onFailure: (failure) => ({ id: context.id, failure }),
                onSuccess: (rewrapped) => ({ ...rewrapped, ...context, old: hex(wrapped_dek) })
              })
            ),
          { concurrency }
        )
      )
      if (Result.isFailure(attempt)) return Result.fail(attempt.failure)
      const [wrapped, failed] = Arr.separate(attempt.success)
      const replaced =
        wrapped.length === 0
          ? []
          : yield* sql<CredentialKey>`
              UPDATE credentials SET kek_id = rewrapped.kek_id, wrapped_dek = decode(rewrapped.wrapped_dek, 'hex')
              FROM unnest(
                ${wrapped.map(({ account_id }) => account_id)}::uuid[],
                ${wrapped.map(({ id }) => id)}::uuid[],
                ${wrapped.map(({ old }) => old)}::text[],
                ${wrapped.map(({ kek_id }) => kek_id)}::text[],
                ${wrapped.map(({ wrapped_dek }) => hex(wrapped_dek))}::text[]
              ) AS rewrapped (account_id, id, old, kek_id, wrapped_dek) ${place}
              AND credentials.account_id = rewrapped.account_id AND credentials.id = rewrapped.id
              AND credentials.wrapped_dek = decode(rewrapped.old, 'hex')
              RETURNING credentials.account_id, credentials.id`
      if (replaced.length > 0) {
        const before = new Map(rows.map((row) => [cursorOf(row), row.kek_id]))
        const from = Record.map(
          Arr.groupBy(replaced, (row) => before.get(cursorOf(row)) ?? ""),
          ({ length }) => length
        )
        yield* record(sql, [{ action: "keyring.rewrap", kek_id: primary, from }])
      }
      const last = rows.length < limit ? end : rows.at(-1)
      return Result.succeed({
        rewrapped: replaced.length,
        failed,
        next: last === undefined ? undefined : cursorOf(last)
      })
    }).pipe(sql.withTransaction, (query) => ask(query, "keks.rewrap"), Effect.flatMap(Effect.fromResult))
}
