import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** When routers last used a credential. Apart from `credential_parkings`, which decide what is offered: this decides nothing. */
const statement = `
  CREATE TABLE credential_use (
    account_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    last_leased_at timestamptz(3),
    last_succeeded_at timestamptz(3),
    last_failed_at timestamptz(3),
    last_failure text CHECK (last_failure ~ '^[a-z_]{1,32}$'),
    PRIMARY KEY (account_id, credential_id),
    CONSTRAINT credential_use_credential
      FOREIGN KEY (account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE,
    CONSTRAINT credential_use_failed CHECK ((last_failed_at IS NULL) = (last_failure IS NULL))
  )`

export default Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql.unsafe(statement)))
