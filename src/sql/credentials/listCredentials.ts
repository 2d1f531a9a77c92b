import { DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { listNames } from "../../domain/Credential.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { failingRow, keyFailures } from "../../domain/routing/LastUse.ts"
import type {
  CredentialPage,
  CredentialRepository,
  CredentialScan,
  ScannedCredential
} from "../../port/CredentialRepository.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { listBytes, credentialColumns, credentialOf, type CredentialRow } from "../rows/credentialRows.ts"
import { isMarkedAsLeaked } from "../rows/parkingRows.ts"

/** A row of the page; an empty page is one row without a credential. Lists are null if they exceed `max_bytes`. */
type Row = { readonly total_count: number } & (
  ({ readonly bytes: number } & CredentialRow) | { readonly bytes: null; readonly id: null }
)

const isStored = (row: Row): row is Row & CredentialRow => row.id !== null

/** SQL for the state of a row of `credentials`, like the domain's `stateOf`, assuming that its key can be opened. */
const stateOf = (sql: SqlClient.SqlClient, account_id: AccountId) => sql`
  CASE
    WHEN ${isMarkedAsLeaked(sql, sql`${account_id}`, sql`credentials.id`, sql`credentials.key_version`)} THEN 'leaked'
    WHEN disabled THEN 'disabled'
    WHEN EXISTS (
      SELECT FROM credential_parkings AS parked
      WHERE parked.account_id = ${account_id} AND parked.credential_id = credentials.id
      AND parked.key_version = credentials.key_version AND parked.until > now()
    ) THEN 'parked'
    WHEN EXISTS (
      SELECT FROM credential_use AS used
      WHERE used.account_id = ${account_id} AND used.credential_id = credentials.id
      AND (used.refused_in_a_row >= ${failingRow}
        OR used.last_failed_version = credentials.key_version AND ${sql.in("used.last_failure", keyFailures)}
        AND coalesce(used.last_succeeded_at, '-infinity') < used.last_failed_at)
    ) THEN 'failing'
    ELSE 'active'
  END`

/** The condition that a credential is as old as so many days, and was not leased since. */
const isUnused = (sql: SqlClient.SqlClient, account_id: AccountId, days: number) => sql`(
    created_at < now() - make_interval(days => ${days}::integer) AND NOT EXISTS (
      SELECT FROM credential_use AS used
      WHERE used.account_id = ${account_id} AND used.credential_id = credentials.id
      AND used.last_leased_at >= now() - make_interval(days => ${days}::integer)
    ))`

type Listed = Effect.Success<ReturnType<CredentialRepository["Service"]["list"]>>

const isList = (column: string) => (listNames as ReadonlyArray<string>).includes(column)

type PageRequest = Pick<CredentialPage, "limit" | "offset" | "workspace_id"> & {
  readonly account_id: AccountId
  /** The page has lists only if they have at most so many bytes together. */
  readonly max_bytes: number
}

/** More than the bytes of any page's lists. */
const unbounded = 2_147_483_647

/** The page that rows make up, and the bytes of its lists, whether they were read or not. */
const pageOf = (rows: ReadonlyArray<Row>) => ({
  bytes: rows[0]?.bytes ?? 0,
  listed: { credentials: rows.filter(isStored).map(credentialOf), total_count: rows[0]?.total_count ?? 0 }
})

/**
 * Lists in one statement, so that page and count are of one snapshot. The count is the sum of `members` in `pools`,
 * unless there are filters besides the provider. The index `credentials_list` finds the first row after the offset.
 */
export const listCredentials = ({ ask, sql }: ConnectionPool) => {
  const select = (
    { account_id, limit, max_bytes, offset, workspace_id }: PageRequest,
    provider: string | undefined,
    filters: ReadonlyArray<Statement.Fragment>
  ) => {
    const isInWorkspace = sql.and([
      sql`account_id = ${account_id}`,
      sql`workspace_id = ${workspace_id}`,
      ...(provider === undefined ? [] : [sql`provider = ${provider}`])
    ])
    const isListed = sql.and([isInWorkspace, ...filters])
    const counted =
      filters.length === 0
        ? sql`SELECT coalesce(sum(members), 0)::int AS total_count FROM pools WHERE ${isInWorkspace}`
        : sql`SELECT count(*)::int AS total_count FROM credentials WHERE ${isListed}`
    const values = credentialColumns.map((column) => {
      const value = sql`${sql(column)}`
      return isList(column)
        ? sql`CASE WHEN sum(list_bytes) OVER () <= ${max_bytes} THEN ${value} END AS ${value}`
        : value
    })
    return sql<Row>`
      SELECT total_count, page.* FROM (${counted}) AS counted LEFT JOIN (
        SELECT (sum(list_bytes) OVER ())::integer AS bytes, ${sql.csv(values)} FROM (
          SELECT ${sql.csv(credentialColumns)}, ${listBytes(sql)} AS list_bytes FROM credentials
          WHERE ${isListed} AND (created_at, id) >= (
            SELECT created_at, id FROM credentials WHERE ${isListed} ORDER BY created_at, id LIMIT 1 OFFSET ${offset}
          ) ORDER BY created_at, id LIMIT ${limit}
        ) AS sized
      ) AS page ON true ORDER BY created_at, id`
  }

  return (
    account_id: AccountId,
    { memory, provider, q: text, state, unused_for, ...page }: CredentialPage
  ): Answer<Listed> => {
    // Systems write an accented letter as one character or as two. Labels are ASCII.
    const q = text?.normalize("NFC")
    const filters = [
      ...(state === undefined ? [] : [sql`${stateOf(sql, account_id)} = ${state}`]),
      ...(unused_for === undefined ? [] : [isUnused(sql, account_id, unused_for)]),
      ...(q === undefined
        ? []
        : [
            sql`(starts_with(normalize(lower(name)), lower(${q})) OR starts_with(lower(label), lower(${q}))
              OR right(lower(label), char_length(${q})) = lower(${q}))`
          ])
    ]
    /** Reads again, with more memory, if the lists exceed `max_bytes`. */
    const list = (max_bytes: number): Answer<Listed> => {
      const rows = ask(select({ account_id, max_bytes, ...page }, provider, filters), "credentials.list", account_id)
      return Effect.flatMap(Effect.map(rows, pageOf), ({ bytes, listed }) =>
        memory !== undefined && bytes > max_bytes
          ? Effect.andThen(memory.take(bytes), list(bytes))
          : Effect.succeed(listed)
      )
    }
    return list(memory?.taken ?? unbounded)
  }
}

/** Scans in the order of the index `credentials_list`, so that later pages cost no more than the first. */
export const scanCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { after, limit, provider, state, unused_for, workspace_id }: CredentialScan) => {
    const rows = sql<CredentialRow & Pick<ScannedCredential, "state">>`
      SELECT account_id, ${sql.csv(credentialColumns)}, ${stateOf(sql, account_id)} AS state FROM credentials WHERE ${sql.and(
        [
          sql`account_id = ${account_id}`,
          ...(workspace_id === undefined ? [] : [sql`workspace_id = ${workspace_id}`]),
          ...(provider === undefined ? [] : [sql`provider = ${provider}`]),
          ...(state === undefined ? [] : [sql`${stateOf(sql, account_id)} = ${state}`]),
          ...(unused_for === undefined ? [] : [isUnused(sql, account_id, unused_for)]),
          ...(after === undefined
            ? []
            : [
                sql`(workspace_id, created_at, id) > (${after.workspace_id}::uuid, ${DateTime.toDate(after.created_at)}::timestamptz, ${after.id}::uuid)`
              ])
        ]
      )}
      ORDER BY workspace_id, created_at, id LIMIT ${limit}`
    return Effect.map(ask(rows, "credentials.scan", account_id), (scanned) =>
      scanned.map((row) => ({ ...credentialOf(row), state: row.state }))
    )
  }
