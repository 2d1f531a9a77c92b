import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * An entry holds the events of one transaction: `json`, because its text stays as it was written. `digests` of a
 * checkpoint has, for every entry it covers, the 8 bytes of its `seq` and the SHA-256 of the entry.
 */
const statements = [
  `CREATE TABLE audit_entries (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz(3) NOT NULL DEFAULT transaction_timestamp(),
    events json NOT NULL
  )`,
  `CREATE TABLE audit_checkpoints (
    number bigint PRIMARY KEY,
    last_seq bigint NOT NULL,
    digests bytea NOT NULL,
    hash bytea NOT NULL CHECK (octet_length(hash) = 32)
  )`
]

export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) yield* sql.unsafe(statement)
})
