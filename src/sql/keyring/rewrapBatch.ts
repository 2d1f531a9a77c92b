import { Array as Arr, Effect, Record, Result } from "effect"
import type { Statement } from "effect/sql"
import { type BoundLink, linkContext, type LinkKeyPair } from "../../domain/Link.ts"
import { type BoundCredential, contextOf, type SealedKey, type SealingContext } from "../../domain/SealedKey.ts"
import type { KekRegistry } from "../../port/KekRegistry.ts"
import { record } from "../audit/auditing.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { tableOf } from "../connection/statements.ts"
import {
  listBytes,
  contextColumns,
  type CredentialKey,
  cursorOf,
  highestKey,
  keyOfCursor,
  lowestKey,
  pageBytes
} from "../rows/credentialRows.ts"

/** The greatest number of rows that a statement scans, even if few of them name another key. */
const scanLimit = 10_000

const rewrappedTypes = { account_id: "uuid", id: "uuid", old: "bytea", kek_id: "text", wrapped_dek: "bytea" } as const

type Row = CredentialKey & SealedKey

/** A table of sealed keys. */
interface Source {
  readonly table: Statement.Fragment
  /** The columns of the sealing context. */
  readonly columns: Statement.Fragment
  /** The total size of a row's lists, in bytes. */
  readonly bytes: Statement.Fragment
  readonly contextOf: (row: Row) => SealingContext
}

/** The prefix of cursors in the table of links. */
const linksPrefix = "links "

/**
 * Rewraps the data keys of a batch of credentials in one transaction, with an audit event if any changed. The batches
 * after the last credential consist of links; their cursors have a prefix. A batch scans at most `scanLimit` rows, and
 * rewraps at most `size` of them, with lists of at most `pageBytes` together.
 */
export const rewrapBatch = ({ ask, distributed, sql }: ConnectionPool): KekRegistry["Service"]["rewrapBatch"] => {
  const ofCredentials: Source = {
    table: sql`credentials`,
    columns: sql.csv(contextColumns),
    bytes: listBytes(sql),
    contextOf: ({ kek_id: _, sealed: _sealed, wrapped_dek: _dek, ...bound }) => contextOf(bound as BoundCredential)
  }
  const ofLinks: Source = {
    table: sql`links`,
    columns: sql`account_id, id, workspace_id, id AS link_id, purpose, provider, credential_id, public_key`,
    bytes: sql`0`,
    contextOf: (row) => {
      const link = row as Row & BoundLink & Pick<LinkKeyPair, "public_key">
      return linkContext(link, link.public_key)
    }
  }

  /**
   * Finds each row to update by its `ctid`, the fastest way. Citus cannot use `ctid` or lock rows of several nodes:
   * there, `wrapped_dek` alone shows whether a row has changed meanwhile.
   */
  const joinRow = (table: Statement.Fragment) =>
    distributed
      ? sql`WHERE true`
      : sql`, LATERAL (
          SELECT ctid FROM ${table} WHERE account_id = rewrapped.account_id AND id = rewrapped.id OFFSET 0
        ) AS place WHERE target.ctid = place.ctid`

  /** Finds a link that names another key than `primary`. */
  const outstandingLink = (primary: string) => sql`SELECT 1 FROM links WHERE kek_id <> ${primary} LIMIT 1`

  return ({ after, primary, size }, rewrap) =>
    Effect.gen(function* () {
      const inLinks = after?.startsWith(linksPrefix) === true
      const { bytes, columns, contextOf, table } = inLinks ? ofLinks : ofCredentials
      const start =
        after === undefined || after === linksPrefix
          ? lowestKey
          : keyOfCursor(inLinks ? after.slice(linksPrefix.length) : after)
      /** The last row to scan; undefined if the table ends before. */
      const [scanEnd] = yield* sql<CredentialKey>`
        SELECT account_id, id FROM ${table} WHERE (account_id, id) > (${start.account_id}::uuid, ${start.id}::uuid)
        ORDER BY account_id, id OFFSET ${scanLimit - 1} LIMIT 1`
      const end = scanEnd ?? highestKey
      const isOutstanding = sql`(account_id, id) > (${start.account_id}::uuid, ${start.id}::uuid)
        AND (account_id, id) <= (${end.account_id}::uuid, ${end.id}::uuid) AND kek_id <> ${primary}`
      const [counts] = yield* sql<{ fitting: number; all: number }>`
        SELECT count(*) FILTER (WHERE bytes <= ${pageBytes})::int AS fitting, count(*)::int AS "all" FROM (
          SELECT sum(bytes) OVER (ORDER BY account_id, id) AS bytes FROM (
            SELECT account_id, id, ${bytes} AS bytes FROM ${table}
            WHERE ${isOutstanding} ORDER BY account_id, id LIMIT ${size}
          ) AS next
        ) AS read`
      // At least one row, even if its lists exceed `pageBytes`.
      const limit = counts === undefined || counts.fitting === counts.all ? size : Math.max(1, counts.fitting)
      const rows = yield* sql<Row>`
        SELECT ${columns}, kek_id, wrapped_dek, substring(sealed FOR 2) AS sealed FROM ${table}
        WHERE ${isOutstanding} ORDER BY account_id, id LIMIT ${limit}
        ${distributed ? sql`` : sql`FOR UPDATE SKIP LOCKED`}`
      const [wrapped, failed] = Arr.separate(
        rows.map((row) =>
          Result.mapBoth(
            rewrap({ kek_id: row.kek_id, sealed: row.sealed, wrapped_dek: row.wrapped_dek }, contextOf(row)),
            {
              onFailure: (failure) => ({ id: row.id, failure }),
              onSuccess: (rewrapped) => ({ ...row, ...rewrapped, old: row.wrapped_dek })
            }
          )
        )
      )
      const replaced =
        wrapped.length === 0
          ? []
          : yield* sql<CredentialKey>`
              UPDATE ${table} AS target SET kek_id = rewrapped.kek_id, wrapped_dek = rewrapped.wrapped_dek
              FROM ${tableOf(sql, "rewrapped", rewrappedTypes, (column) => wrapped.map((row) => row[column]))}
              ${joinRow(table)} AND target.account_id = rewrapped.account_id AND target.id = rewrapped.id
              AND target.wrapped_dek = rewrapped.old
              RETURNING target.account_id, target.id`
      if (replaced.length > 0) {
        const oldKeks = new Map(rows.map((row) => [cursorOf(row), row.kek_id]))
        const countsByOldKek = Record.map(
          Arr.groupBy(replaced, (row) => oldKeks.get(cursorOf(row)) ?? ""),
          ({ length }) => length
        )
        yield* record(sql, [{ action: "keyring.rewrap", kek_id: primary, from: countsByOldKek }])
      }
      /**
       * The row after which the next batch begins: the end of the scan if all rows up to it were read, else the last
       * row read. Undefined at the end of the table.
       */
      const resumeAfter = rows.length < limit ? scanEnd : rows.at(-1)
      const linksFollow = resumeAfter === undefined && !inLinks && (yield* outstandingLink(primary)).length > 0
      const cursor = resumeAfter && `${inLinks ? linksPrefix : ""}${cursorOf(resumeAfter)}`
      return { rewrapped: replaced.length, failed, next: cursor ?? (linksFollow ? linksPrefix : undefined) }
    }).pipe(sql.withTransaction, (query) => ask(query, "keks.rewrap"))
}
