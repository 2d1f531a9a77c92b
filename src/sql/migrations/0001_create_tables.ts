import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Repeats the domain's rules, against faulty programs and people at the database. */
const statements = [
  `CREATE TABLE accounts (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 255),
    created_at timestamptz(3) NOT NULL
  )`,
  `CREATE TABLE workspaces (
    id uuid PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 255),
    is_default boolean NOT NULL,
    created_at timestamptz(3) NOT NULL,
    deleted_at timestamptz(3),
    UNIQUE (account_id, id)
  )`,
  `CREATE UNIQUE INDEX workspaces_default ON workspaces (account_id) WHERE is_default`,
  `CREATE TABLE api_keys (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    account_id uuid NOT NULL REFERENCES accounts,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 255),
    management boolean NOT NULL,
    created_at timestamptz(3) NOT NULL,
    revoked_at timestamptz(3)
  )`,
  `CREATE INDEX api_keys_account ON api_keys (account_id)`,
  `CREATE TABLE keks (
    id text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,64}$'),
    check_value bytea NOT NULL CHECK (octet_length(check_value) = 16),
    wraps bigint NOT NULL DEFAULT 0 CHECK (wraps >= 0)
  )`,
  `CREATE TABLE credentials (
    id uuid PRIMARY KEY,
    account_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    provider text NOT NULL CHECK (provider ~ '^[a-z0-9-]{1,64}(/[a-z0-9-]{1,64})?$'),
    name text CHECK (char_length(name) <= 255),
    label text NOT NULL CHECK (char_length(label) BETWEEN 5 AND 10),
    created_at timestamptz(3) NOT NULL,
    disabled boolean NOT NULL,
    is_fallback boolean NOT NULL,
    is_required boolean NOT NULL,
    is_byok_only boolean NOT NULL,
    allowed_api_key_hashes text[] CHECK (
      cardinality(allowed_api_key_hashes) BETWEEN 1 AND 100
      AND array_to_string(allowed_api_key_hashes, ',', '?') ~ '^[a-f0-9]{64}(,[a-f0-9]{64})*$'
      AND length(array_to_string(allowed_api_key_hashes, ',')) = 65 * cardinality(allowed_api_key_hashes) - 1
    ),
    allowed_models text[] CHECK (cardinality(allowed_models) <= 100 AND array_position(allowed_models, NULL) IS NULL),
    allowed_user_ids text[] CHECK (cardinality(allowed_user_ids) <= 100 AND array_position(allowed_user_ids, NULL) IS NULL),
    declared_region text CHECK (declared_region IN ('global', 'europe', 'us')),
    declared_zdr boolean,
    sort_order integer NOT NULL CHECK (sort_order >= 0),
    kek_id text NOT NULL CHECK (kek_id ~ '^[A-Za-z0-9._-]{1,64}$'),
    wrapped_dek bytea NOT NULL CHECK (octet_length(wrapped_dek) = 60),
    sealed bytea NOT NULL CHECK (octet_length(sealed) > 62),
    CONSTRAINT credentials_workspace FOREIGN KEY (account_id, workspace_id) REFERENCES workspaces (account_id, id),
    CONSTRAINT credentials_flags CHECK (NOT (is_fallback AND (is_byok_only OR is_required)))
  )`,
  `CREATE INDEX credentials_order ON credentials (workspace_id, provider, sort_order)`,
  `CREATE INDEX credentials_kek ON credentials (kek_id)`
]

export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) yield* sql.unsafe(statement)
})
