import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Keys that no router is offered: of the model, or of every model if that is ''. A parking of another `key_version` than
 * the credential's counts for nothing, so replacing a key ends it without a write. Without `until` it has no end.
 */
const statement = `
  CREATE TABLE credential_parkings (
    account_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    model text NOT NULL,
    key_version integer NOT NULL CHECK (key_version > 0),
    cause text NOT NULL CHECK (cause ~ '^[a-z_]{1,32}$'),
    strikes integer NOT NULL CHECK (strikes >= 0),
    until timestamptz(3),
    parked_at timestamptz(3) NOT NULL,
    PRIMARY KEY (account_id, credential_id, model),
    CONSTRAINT credential_parkings_credential
      FOREIGN KEY (account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE,
    CONSTRAINT credential_parkings_leaked CHECK (cause <> 'leaked' OR (model = '' AND until IS NULL))
  )`

export default Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql.unsafe(statement)))
