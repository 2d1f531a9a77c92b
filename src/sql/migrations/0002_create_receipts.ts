import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The primary key makes concurrent requests create one credential. A receipt is deleted with its credential. */
const statements = [
  `CREATE TABLE receipts (
    account_id uuid NOT NULL,
    key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    credential_id uuid NOT NULL UNIQUE REFERENCES credentials ON DELETE CASCADE,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    created_at timestamptz(3) NOT NULL,
    PRIMARY KEY (account_id, key_hash)
  )`,
  `CREATE INDEX receipts_age ON receipts (created_at)`
]

export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) yield* sql.unsafe(statement)
})
