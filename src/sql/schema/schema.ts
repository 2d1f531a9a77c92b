import { writes } from "./writes.ts"

/**
 * The statements that create the whole schema, with the functions that write credentials. Constraints repeat the domain's rules, against faulty programs and
 * direct SQL. Keys of the tables that `distribute` spreads over nodes contain the account, as Citus requires.
 */
export const schema: ReadonlyArray<string> = [
  `CREATE TABLE accounts (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 255),
    created_at timestamptz(3) NOT NULL
  )`,

  `CREATE TABLE workspaces (
    id uuid NOT NULL,
    account_id uuid NOT NULL REFERENCES accounts,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 255),
    is_default boolean NOT NULL,
    created_at timestamptz(3) NOT NULL,
    deleted_at timestamptz(3),
    PRIMARY KEY (account_id, id)
  )`,
  `CREATE UNIQUE INDEX workspaces_default ON workspaces (account_id) WHERE is_default`,
  `CREATE INDEX workspaces_list ON workspaces (account_id, created_at, id)`,
  // For commands that name a workspace without its account.
  `CREATE INDEX workspaces_id ON workspaces (id)`,

  `CREATE TABLE api_keys (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    account_id uuid NOT NULL REFERENCES accounts,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 255),
    role text NOT NULL CHECK (role IN ('management', 'viewer', 'ordinary')),
    created_at timestamptz(3) NOT NULL,
    revoked_at timestamptz(3)
  )`,
  `CREATE INDEX api_keys_account ON api_keys (account_id, created_at, hash)`,
  `CREATE INDEX api_keys_clients ON api_keys (account_id, created_at, hash) WHERE role = 'ordinary' AND revoked_at IS NULL`,

  // Links for owners of keys. `hash` is the hash of the token. Browsers encrypt to the public key. The key pair is
  // deleted when the link ends, or soon after it has expired. `stored_label` is the label of the key that a used link stored.
  `CREATE TABLE links (
    id uuid NOT NULL,
    account_id uuid NOT NULL REFERENCES accounts,
    workspace_id uuid NOT NULL,
    purpose text NOT NULL CHECK (purpose IN ('connect', 'replace', 'manage', 'view')),
    provider text,
    credential_id uuid,
    return_url text CHECK (char_length(return_url) <= 2048),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    created_at timestamptz(3) NOT NULL,
    expires_at timestamptz(3) NOT NULL,
    ended text CHECK (ended IN ('used', 'revoked')),
    public_key bytea CHECK (octet_length(public_key) = 65),
    kek_id text,
    wrapped_dek bytea,
    sealed bytea,
    stored_label text CHECK (char_length(stored_label) BETWEEN 5 AND 10),
    PRIMARY KEY (account_id, id),
    CONSTRAINT links_day CHECK (expires_at <= created_at + interval '1 day'),
    CONSTRAINT links_credential CHECK ((credential_id IS NOT NULL) = (purpose = 'replace' OR purpose = 'connect' AND ended IS NOT DISTINCT FROM 'used')),
    CONSTRAINT links_keys CHECK (num_nulls(public_key, kek_id, wrapped_dek, sealed) IN (0, 4)),
    CONSTRAINT links_over CHECK (ended IS NULL OR public_key IS NULL)
  )`,
  `CREATE INDEX links_hash ON links (hash)`,
  `CREATE INDEX links_expiry ON links (expires_at)`,

  // Key-encryption keys. Retiring one adds a constraint to `credentials` and `links`, so that no row may name it.
  `CREATE TABLE keks (
    id text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,64}$'),
    check_value bytea NOT NULL CHECK (octet_length(check_value) = 16),
    wraps bigint NOT NULL DEFAULT 0 CHECK (wraps >= 0),
    retired_at timestamptz(3),
    registered_at timestamptz(3) NOT NULL DEFAULT now()
  )`,

  // The keys that each running instance has loaded, announced every 20 seconds and after each reload.
  `CREATE TABLE keyring_instances (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    kek_ids text[] NOT NULL,
    seen_at timestamptz(3) NOT NULL
  )`,

  // The credentials of a workspace and provider. A change of members or parkings that a plan may see first locks this
  // row, and raises `version` or `health`, respectively. `bytes` counts the members' lists and sealed keys.
  `CREATE TABLE pools (
    account_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    provider text NOT NULL CHECK (provider ~ '^[a-z0-9-]{1,64}(/[a-z0-9-]{1,64})?$'),
    version bigint NOT NULL DEFAULT 0,
    health bigint NOT NULL DEFAULT 0,
    members integer NOT NULL DEFAULT 0 CHECK (members >= 0),
    next_order bigint NOT NULL DEFAULT 0 CHECK (next_order >= 0),
    bytes bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    PRIMARY KEY (account_id, workspace_id, provider),
    CONSTRAINT pools_workspace FOREIGN KEY (account_id, workspace_id) REFERENCES workspaces (account_id, id)
  ) WITH (fillfactor = 50)`,

  `CREATE TABLE credentials (
    id uuid NOT NULL,
    account_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    provider text NOT NULL,
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
    sort_order bigint NOT NULL CHECK (sort_order >= 0),
    kek_id text NOT NULL CHECK (kek_id ~ '^[A-Za-z0-9._-]{1,64}$'),
    wrapped_dek bytea NOT NULL CHECK (octet_length(wrapped_dek) = 60),
    sealed bytea NOT NULL CHECK (octet_length(sealed) > 62),
    revision bigint NOT NULL DEFAULT 1,
    key_version bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (account_id, id),
    CONSTRAINT credentials_pool
      FOREIGN KEY (account_id, workspace_id, provider) REFERENCES pools (account_id, workspace_id, provider),
    CONSTRAINT credentials_flags CHECK (NOT (is_fallback AND (is_byok_only OR is_required)))
  )`,
  `CREATE INDEX credentials_order ON credentials (account_id, workspace_id, provider, sort_order)`,
  // Lets a list count matches, and skip pages, without reading rows.
  `CREATE INDEX credentials_list ON credentials (account_id, workspace_id, created_at, id) INCLUDE (provider)`,
  `CREATE INDEX credentials_kek ON credentials (kek_id)`,

  // The primary key lets concurrent requests with one idempotency key create only one credential. A record outlives its
  // credential, so that a create repeated after a deletion is recognised.
  `CREATE TABLE idempotency_records (
    account_id uuid NOT NULL,
    key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    credential_id uuid NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    created_at timestamptz(3) NOT NULL,
    PRIMARY KEY (account_id, key_hash),
    UNIQUE (account_id, credential_id)
  )`,
  `CREATE INDEX idempotency_records_age ON idempotency_records (created_at)`,

  // Keys that routers must not use, for a model, or for every model if `model` is ''. A parking counts only for its
  // `key_version`, so that replacing a key ends it without a write. Without `until`, it has no end; a row with cause
  // `succeeded` parks nothing. `epoch` counts the successes that ended cooldowns: refusals from before change nothing.
  `CREATE TABLE credential_parkings (
    account_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    model text NOT NULL,
    key_version bigint NOT NULL CHECK (key_version > 0),
    cause text NOT NULL CHECK (cause ~ '^[a-z_]{1,32}$'),
    strikes integer NOT NULL CHECK (strikes >= 0),
    until timestamptz(3),
    parked_at timestamptz(3) NOT NULL,
    epoch bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    PRIMARY KEY (account_id, credential_id, model),
    CONSTRAINT credential_parkings_credential
      FOREIGN KEY (account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE,
    CONSTRAINT credential_parkings_leaked CHECK (cause <> 'leaked' OR (model = '' AND until IS NULL))
  )`,

  // For creates, which compare a new key with those of the account that are marked as leaked.
  `CREATE INDEX credential_parkings_leaked ON credential_parkings (account_id) WHERE cause = 'leaked'`,

  // When routers last used a credential; shown only, never used for decisions.
  `CREATE TABLE credential_use (
    account_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    last_leased_at timestamptz(3),
    last_succeeded_at timestamptz(3),
    last_failed_at timestamptz(3),
    last_failure text CHECK (last_failure ~ '^[a-z_]{1,32}$'),
    last_failed_version bigint CHECK (last_failed_version > 0),
    last_refused_at timestamptz(3),
    last_refused_status integer,
    last_refused_code text CHECK (last_refused_code ~ '^[!-~]{1,64}$'),
    refused_since timestamptz(3),
    refused_in_a_row integer NOT NULL DEFAULT 0 CHECK (refused_in_a_row >= 0),
    PRIMARY KEY (account_id, credential_id),
    CONSTRAINT credential_use_credential
      FOREIGN KEY (account_id, credential_id) REFERENCES credentials (account_id, id) ON DELETE CASCADE,
    CONSTRAINT credential_use_failed CHECK ((last_failed_at IS NULL) = (last_failure IS NULL))
  )`,

  // A transaction writes an entry per credential, one for the other events of each account, and one for the events of
  // no account; a step of an account's erasure writes a single entry. `json` keeps the text as written. The hash chain
  // omits `account_id`, which repeats the events, and `operation`, which tells a retried write whether it was committed.
  // Accounts know their entries by `operation`: `seq` would tell them how much others do.
  `CREATE TABLE audit_entries (
    seq bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at timestamptz(3) NOT NULL DEFAULT transaction_timestamp(),
    account_id uuid,
    operation uuid NOT NULL DEFAULT gen_random_uuid(),
    events json NOT NULL
  )`,
  `CREATE UNIQUE INDEX audit_entries_operation ON audit_entries (account_id, operation) NULLS NOT DISTINCT`,
  `CREATE INDEX audit_entries_account ON audit_entries (account_id, seq)`,
  `CREATE INDEX audit_entries_credential ON audit_entries (account_id, (events -> 0 ->> 'credential_id'), seq)
    WHERE events -> 0 ->> 'credential_id' IS NOT NULL`,

  // Event delivery has delivered all entries up to `seq`, and the first `done` events of the next entry.
  `CREATE TABLE event_cursors (
    id integer PRIMARY KEY CHECK (id = 1),
    seq bigint NOT NULL,
    done integer NOT NULL DEFAULT 0 CHECK (done >= 0),
    holder uuid,
    held_until timestamptz(3),
    failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    retry_at timestamptz(3)
  )`,

  // `digests` has, for each entry since the previous checkpoint, the 8 bytes of `seq` and the SHA-256 of the entry.
  `CREATE TABLE audit_checkpoints (
    number bigint PRIMARY KEY,
    last_seq bigint NOT NULL,
    digests bytea NOT NULL,
    hash bytea NOT NULL CHECK (octet_length(hash) = 32)
  )`,

  ...writes
]
