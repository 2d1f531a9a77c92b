import { DateTime, Effect } from "effect"
import type { AccountId } from "../domain/Identifiers.ts"
import type { CredentialPage, CredentialScan } from "../port/CredentialRepository.ts"
import type { ConnectionPool } from "./connection/ConnectionPool.ts"
import { columns, credentialOf, type Stored } from "./credentialRows.ts"

/** A credential of the page and the total count; an empty page is one row without a credential. */
type Row = { readonly total_count: number } & (Stored | { readonly id: null })

const isStored = (row: Row): row is Row & Stored => row.id !== null

/**
 * Lists with one statement, so page and count come from one snapshot. Both are read from the index `credentials_list`, and
 * only the rows of the page from the table. Count and offset still pass over index entries, one for each credential.
 */
export const listCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { limit, offset, provider, workspace_id }: CredentialPage) => {
    const listed = sql`account_id = ${account_id} AND workspace_id = ${workspace_id} ${
      provider === undefined ? sql`` : sql`AND provider = ${provider}`
    }`
    const rows = sql<Row>`
      SELECT counted.total_count, ${sql.csv(columns.map((column) => sql`credentials.${sql(column)}`))}
      FROM (SELECT count(*)::int AS total_count FROM credentials WHERE ${listed}) AS counted
      LEFT JOIN (
        SELECT id FROM credentials WHERE ${listed} ORDER BY created_at, id LIMIT ${limit} OFFSET ${offset}
      ) AS page ON true
      LEFT JOIN credentials ON credentials.account_id = ${account_id} AND credentials.id = page.id
      ORDER BY credentials.created_at, credentials.id`
    return Effect.map(ask(rows, "credentials.list"), (found) => ({
      credentials: found.filter(isStored).map(({ total_count: _, ...stored }) => credentialOf(stored)),
      total_count: found[0]?.total_count ?? 0
    }))
  }

/** Scans in the order of the index `credentials_list`, so a part costs the same wherever it begins. */
export const scanCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { after, limit, provider, workspace_id }: CredentialScan) => {
    const rows = sql<Stored>`
      SELECT account_id, ${sql.csv(columns)} FROM credentials WHERE ${sql.and([
        sql`account_id = ${account_id}`,
        ...(workspace_id === undefined ? [] : [sql`workspace_id = ${workspace_id}`]),
        ...(provider === undefined ? [] : [sql`provider = ${provider}`]),
        ...(after === undefined
          ? []
          : [
              sql`(workspace_id, created_at, id) > (${after.workspace_id}::uuid, ${DateTime.toDate(after.created_at)}::timestamptz, ${after.id}::uuid)`
            ])
      ])}
      ORDER BY workspace_id, created_at, id LIMIT ${limit}`
    return Effect.map(ask(rows, "credentials.scan"), (found) => found.map(credentialOf))
  }
