import type { SqlClient, Statement } from "effect/sql"

/** The marks that keys have leaked, among the parkings `parked`. */
export const marks = (sql: SqlClient.SqlClient) => sql`parked.model = '' AND parked.cause = 'leaked'`

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
    AND parked.key_version = ${key_version} AND ${marks(sql)}
  )`
