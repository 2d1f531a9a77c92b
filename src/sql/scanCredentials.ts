import { DateTime, Effect } from "effect"
import type { AccountId } from "../domain/Identifiers.ts"
import type { CredentialScan } from "../port/CredentialRepository.ts"
import type { ConnectionPool } from "./connection/ConnectionPool.ts"
import { columns, credentialOf, type Stored } from "./credentialRows.ts"

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
