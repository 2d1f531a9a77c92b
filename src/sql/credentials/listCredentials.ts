import { DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { CredentialPage, CredentialScan, ScannedCredential } from "../../port/CredentialRepository.ts"
import { compileOnce } from "../connection/compileOnce.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { columns, credentialOf, type Stored } from "./credentialRows.ts"
import { isMarked } from "../routing/ParkingsLive.ts"

/** A credential of the page and the total count; an empty page is one row without a credential. */
type Row = { readonly total_count: number } & (Stored | { readonly id: null })

const isStored = (row: Row): row is Row & Stored => row.id !== null

/** The state of a row of `credentials` whose key opens, as the domain's `stateOf` has it. */
const stateOf = (sql: SqlClient.SqlClient, account_id: AccountId) => sql`
  CASE
    WHEN ${isMarked(sql, sql`${account_id}`, sql`credentials.id`, sql`credentials.key_version`)} THEN 'leaked'
    WHEN disabled THEN 'disabled'
    WHEN EXISTS (
      SELECT FROM credential_parkings AS parked
      WHERE parked.account_id = ${account_id} AND parked.credential_id = credentials.id
      AND parked.key_version = credentials.key_version AND parked.until > now()
    ) THEN 'parked'
    ELSE 'active'
  END`

const paging = ["account_id", "workspace_id", "limit", "offset"] as const

/**
 * Lists with one statement, so page and count come from one snapshot. Both are read from the index `credentials_list`, and
 * only the rows of the page from the table. Count and offset still pass over index entries, one for each credential.
 */
export const listCredentials = ({ ask, sql }: ConnectionPool) => {
  const select = (
    { account_id, limit, offset, workspace_id }: Readonly<Record<(typeof paging)[number], string | number>>,
    filters: ReadonlyArray<Statement.Fragment> = []
  ) => {
    const listed = sql.and([sql`account_id = ${account_id}`, sql`workspace_id = ${workspace_id}`, ...filters])
    return sql<Row>`
      SELECT counted.total_count, ${sql.csv(columns.map((column) => sql`credentials.${sql(column)}`))}
      FROM (SELECT count(*)::int AS total_count FROM credentials WHERE ${listed}) AS counted
      LEFT JOIN (
        SELECT id FROM credentials WHERE ${listed} ORDER BY created_at, id LIMIT ${limit} OFFSET ${offset}
      ) AS page ON true
      LEFT JOIN credentials ON credentials.account_id = ${account_id} AND credentials.id = page.id
      ORDER BY credentials.created_at, credentials.id`
  }
  const unfiltered = compileOnce(sql, paging, select)

  return (account_id: AccountId, { provider, q, state, ...page }: CredentialPage) => {
    const filters = [
      ...(provider === undefined ? [] : [sql`provider = ${provider}`]),
      ...(state === undefined ? [] : [sql`${stateOf(sql, account_id)} = ${state}`]),
      ...(q === undefined
        ? []
        : [sql`(starts_with(lower(name), lower(${q})) OR starts_with(lower(label), lower(${q})))`])
    ]
    const given = { account_id, ...page }
    const rows = filters.length === 0 ? unfiltered(given) : select(given, filters)
    return Effect.map(ask(rows, "credentials.list"), (found) => ({
      credentials: found.filter(isStored).map(credentialOf),
      total_count: found[0]?.total_count ?? 0
    }))
  }
}

/** Scans in the order of the index `credentials_list`, so a part costs the same wherever it begins. */
export const scanCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { after, limit, provider, state, workspace_id }: CredentialScan) => {
    const rows = sql<Stored & Pick<ScannedCredential, "state">>`
      SELECT account_id, ${sql.csv(columns)}, ${stateOf(sql, account_id)} AS state FROM credentials WHERE ${sql.and([
        sql`account_id = ${account_id}`,
        ...(workspace_id === undefined ? [] : [sql`workspace_id = ${workspace_id}`]),
        ...(provider === undefined ? [] : [sql`provider = ${provider}`]),
        ...(state === undefined ? [] : [sql`${stateOf(sql, account_id)} = ${state}`]),
        ...(after === undefined
          ? []
          : [
              sql`(workspace_id, created_at, id) > (${after.workspace_id}::uuid, ${DateTime.toDate(after.created_at)}::timestamptz, ${after.id}::uuid)`
            ])
      ])}
      ORDER BY workspace_id, created_at, id LIMIT ${limit}`
    return Effect.map(ask(rows, "credentials.scan"), (found) =>
      found.map((row) => ({ ...credentialOf(row), state: row.state }))
    )
  }
