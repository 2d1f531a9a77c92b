/**
 * The functions that write credentials: each makes one write in one round trip, in statements that run in order.
 *
 * Lock order, of these functions and of all other transactions: link, then workspace, then pool (several in the order
 * of their keys), then credential. So no two transactions deadlock, and whoever holds a pool's lock is alone with its
 * members. Invariants:
 *
 * - A write and its audit entry commit together, or neither does.
 * - A write commits once. `operation` names it in the audit log: a repeat after a lost answer waits for the pool's lock,
 *   finds the entry and answers 'stored'. The lock also makes its commit wait for the replicas.
 * - A write that members or plans depend on raises the `version` of the pool, and keeps its counts exact.
 * - A link's write commits while the link is open; a link for one write ends with it.
 *
 * `outcome` tells what was done; for all but 'stored', nothing was. With Citus, the coordinator runs the function; each
 * statement in it names one account and calls no function of ours, so that one node runs it. No parameter has the type
 * of a table, because the way back from Citus makes the tables anew. Members that `credential` lacks are null in a new
 * row and unchanged in a stored one, so that a later migration may add columns while this version still writes.
 */
export const writes: ReadonlyArray<string> = [
  // The size of a credential's lists and sealed key, which `pools.bytes` adds up.
  `CREATE FUNCTION member_bytes(hashes text[], models text[], user_ids text[], sealed bytea) RETURNS bigint
  LANGUAGE sql STABLE AS $$
    SELECT coalesce(octet_length(array_to_string(hashes, '')), 0) + coalesce(octet_length(array_to_string(models, '')), 0)
      + coalesce(octet_length(array_to_string(user_ids, '')), 0) + octet_length(sealed)
  $$`,

  // Locks the link, if any, that a write is made by. Returns whether the write may be made.
  `CREATE FUNCTION lock_link(of_account uuid, link uuid) RETURNS boolean LANGUAGE plpgsql AS $$
  BEGIN
    IF link IS NULL THEN RETURN true; END IF;
    PERFORM FROM links
    WHERE account_id = of_account AND id = link AND ended IS NULL AND expires_at > now() FOR UPDATE;
    RETURN FOUND;
  END $$`,

  // Ends a link that was for one write, with the credential that it stored.
  `CREATE FUNCTION end_link(of_account uuid, link uuid, stored_id uuid, label text) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    IF link IS NULL THEN RETURN; END IF;
    UPDATE links SET ended = 'used', credential_id = stored_id, stored_label = label,
      public_key = NULL, kek_id = NULL, wrapped_dek = NULL, sealed = NULL
    WHERE account_id = of_account AND id = link AND purpose IN ('connect', 'replace');
  END $$`,

  // Whether an earlier attempt has made the write.
  `CREATE FUNCTION was_made(of_account uuid, of_operation uuid) RETURNS boolean LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM FROM audit_entries WHERE account_id = of_account AND operation = of_operation;
    RETURN FOUND;
  END $$`,

  // Stores a credential at the end of its pool's order. 'taken': its id or idempotency key is another create's.
  `CREATE FUNCTION create_credential(
    credential json, key_hash bytea, fingerprint bytea, max_members integer, max_bytes bigint,
    link uuid, operation uuid, events json,
    OUT outcome text, OUT sort_order bigint, OUT created_at timestamptz
  ) LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    new credentials := json_populate_record(NULL::credentials, credential);
    size bigint := member_bytes(new.allowed_api_key_hashes, new.allowed_models, new.allowed_user_ids, new.sealed);
    is_open boolean := lock_link(new.account_id, link);
    has_workspace boolean;
    pool pools;
  BEGIN
    PERFORM FROM workspaces
    WHERE account_id = new.account_id AND id = new.workspace_id AND deleted_at IS NULL FOR SHARE;
    has_workspace := FOUND;
    IF has_workspace THEN
      INSERT INTO pools (account_id, workspace_id, provider) VALUES (new.account_id, new.workspace_id, new.provider)
      ON CONFLICT DO NOTHING;
    END IF;
    SELECT * INTO pool FROM pools
    WHERE account_id = new.account_id AND workspace_id = new.workspace_id AND provider = new.provider FOR NO KEY UPDATE;

    IF was_made(new.account_id, operation) THEN
      SELECT 'stored', credentials.sort_order, credentials.created_at INTO outcome, sort_order, created_at
      FROM credentials WHERE account_id = new.account_id AND id = new.id AND sealed = new.sealed;
      outcome := coalesce(outcome, 'taken');
      RETURN;
    END IF;
    outcome := CASE
      WHEN NOT is_open THEN 'link_closed'
      WHEN NOT has_workspace THEN 'workspace_gone'
      WHEN pool.members >= max_members THEN 'too_many'
      WHEN pool.bytes + size > max_bytes THEN 'too_large'
      ELSE 'stored'
    END;
    IF outcome <> 'stored' THEN RETURN; END IF;

    IF key_hash IS NOT NULL THEN
      INSERT INTO idempotency_records (account_id, key_hash, credential_id, fingerprint, created_at)
      VALUES (new.account_id, key_hash, new.id, fingerprint, now()) ON CONFLICT (account_id, key_hash) DO NOTHING;
      IF NOT FOUND THEN outcome := 'taken'; RETURN; END IF;
    END IF;
    UPDATE pools SET version = version + 1, members = members + 1, next_order = next_order + 1,
      bytes = pool.bytes + size
    WHERE account_id = new.account_id AND workspace_id = new.workspace_id AND provider = new.provider;
    new.revision := 1;
    new.key_version := 1;
    new.sort_order := pool.next_order;
    new.created_at := date_trunc('milliseconds', now());
    INSERT INTO credentials VALUES (new.*);
    PERFORM end_link(new.account_id, link, new.id, new.label);
    INSERT INTO audit_entries (account_id, operation, events) VALUES (new.account_id, operation, events);
    sort_order := new.sort_order;
    created_at := new.created_at;
  END $$`,

  // Changes the members that `credential` has, if the stored revision is the one that was read; else 'changed'. A
  // credential that does not grow fits even in a pool beyond its limit, which may have been lowered.
  `CREATE FUNCTION update_credential(
    credential json, read_revision bigint, max_bytes bigint, link uuid, operation uuid, events json, OUT outcome text
  ) LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    new credentials := json_populate_record(NULL::credentials, credential);
    is_open boolean := lock_link(new.account_id, link);
    pool pools;
    stored credentials;
    growth bigint;
  BEGIN
    SELECT * INTO pool FROM pools
    WHERE account_id = new.account_id AND workspace_id = new.workspace_id AND provider = new.provider FOR NO KEY UPDATE;
    IF was_made(new.account_id, operation) THEN outcome := 'stored'; RETURN; END IF;
    SELECT * INTO stored FROM credentials WHERE account_id = new.account_id AND id = new.id FOR NO KEY UPDATE;
    new := json_populate_record(stored, credential);
    growth := member_bytes(new.allowed_api_key_hashes, new.allowed_models, new.allowed_user_ids, new.sealed)
      - member_bytes(stored.allowed_api_key_hashes, stored.allowed_models, stored.allowed_user_ids, stored.sealed);
    outcome := CASE
      WHEN NOT is_open THEN 'link_closed'
      WHEN stored.revision IS DISTINCT FROM read_revision THEN 'changed'
      WHEN growth > 0 AND pool.bytes + growth > max_bytes THEN 'too_large'
      ELSE 'stored'
    END;
    IF outcome <> 'stored' THEN RETURN; END IF;

    UPDATE credentials SET name = new.name, label = new.label, disabled = new.disabled, is_fallback = new.is_fallback,
      is_required = new.is_required, is_byok_only = new.is_byok_only,
      allowed_api_key_hashes = new.allowed_api_key_hashes, allowed_models = new.allowed_models,
      allowed_user_ids = new.allowed_user_ids, declared_region = new.declared_region,
      declared_zdr = new.declared_zdr, kek_id = new.kek_id, wrapped_dek = new.wrapped_dek, sealed = new.sealed,
      key_version = new.key_version, revision = read_revision + 1
    WHERE account_id = new.account_id AND id = new.id;
    UPDATE pools SET version = version + 1, bytes = greatest(pool.bytes + growth, 0)
    WHERE account_id = new.account_id AND workspace_id = new.workspace_id AND provider = new.provider;
    PERFORM end_link(new.account_id, link, new.id, new.label);
    INSERT INTO audit_entries (account_id, operation, events) VALUES (new.account_id, operation, events);
  END $$`,

  // Deletes a credential, if the stored revision is the one that was read; else 'changed'. The size of a row that somebody
  // edited in the database may exceed the pool's.
  `CREATE FUNCTION delete_credential(
    of_account uuid, of_workspace uuid, of_provider text, of_id uuid, read_revision bigint,
    link uuid, operation uuid, events json, OUT outcome text
  ) LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    is_open boolean := lock_link(of_account, link);
    pool pools;
    stored credentials;
    size bigint;
  BEGIN
    SELECT * INTO pool FROM pools
    WHERE account_id = of_account AND workspace_id = of_workspace AND provider = of_provider FOR NO KEY UPDATE;
    IF was_made(of_account, operation) THEN outcome := 'stored'; RETURN; END IF;
    SELECT * INTO stored FROM credentials WHERE account_id = of_account AND id = of_id FOR UPDATE;
    size := member_bytes(stored.allowed_api_key_hashes, stored.allowed_models, stored.allowed_user_ids, stored.sealed);
    outcome := CASE
      WHEN NOT is_open THEN 'link_closed'
      WHEN stored.revision IS DISTINCT FROM read_revision THEN 'changed'
      ELSE 'stored'
    END;
    IF outcome <> 'stored' THEN RETURN; END IF;

    DELETE FROM credentials WHERE account_id = of_account AND id = of_id;
    UPDATE pools SET version = version + 1, members = members - 1, bytes = greatest(pool.bytes - size, 0)
    WHERE account_id = of_account AND workspace_id = of_workspace AND provider = of_provider;
    INSERT INTO audit_entries (account_id, operation, events) VALUES (of_account, operation, events);
  END $$`,

  // Stores an order of all members of a pool. 'mismatch': lists members that `ids` lacks, and ids of no member.
  // 'unchanged': it is the order already. A credential created later comes last.
  `CREATE FUNCTION order_credentials(
    of_account uuid, of_workspace uuid, of_provider text, ids uuid[], link uuid, operation uuid, events json,
    OUT outcome text, OUT missing uuid[], OUT foreign_ids uuid[]
  ) LANGUAGE plpgsql AS $$
  #variable_conflict use_column
  DECLARE
    is_open boolean := lock_link(of_account, link);
    stored uuid[];
  BEGIN
    PERFORM FROM pools
    WHERE account_id = of_account AND workspace_id = of_workspace AND provider = of_provider FOR NO KEY UPDATE;
    IF was_made(of_account, operation) THEN outcome := 'stored'; RETURN; END IF;
    stored := ARRAY(
      SELECT id FROM credentials
      WHERE account_id = of_account AND workspace_id = of_workspace AND provider = of_provider
      ORDER BY sort_order, created_at, id
    );
    missing := ARRAY(
      SELECT one FROM unnest(stored) WITH ORDINALITY AS members (one, n)
      WHERE one NOT IN (SELECT unnest(ids)) ORDER BY n
    );
    foreign_ids := ARRAY(
      SELECT one FROM unnest(ids) WITH ORDINALITY AS wanted (one, n)
      WHERE one NOT IN (SELECT unnest(stored)) ORDER BY n
    );
    outcome := CASE
      WHEN NOT is_open THEN 'link_closed'
      WHEN missing <> '{}' OR foreign_ids <> '{}' THEN 'mismatch'
      WHEN stored = ids THEN 'unchanged'
      ELSE 'stored'
    END;
    IF outcome <> 'stored' THEN RETURN; END IF;

    UPDATE credentials SET sort_order = place - 1 FROM unnest(ids) WITH ORDINALITY AS wanted (wanted_id, place)
    WHERE account_id = of_account AND id = wanted_id;
    UPDATE pools SET version = version + 1
    WHERE account_id = of_account AND workspace_id = of_workspace AND provider = of_provider;
    INSERT INTO audit_entries (account_id, operation, events) VALUES (of_account, operation, events);
  END $$`
]
