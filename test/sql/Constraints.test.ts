import { Cause, Context, Data, Effect, Exit, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { WorkspaceId } from "../../src/domain/Identifiers.ts"
import { Provider } from "../../src/domain/Provider.ts"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { assert, layer } from "../support/it.ts"

type Row = Readonly<Record<string, unknown>>

const id = (n: number) => `01935f6a-0000-7000-8000-${String(n).padStart(12, "0")}`
const hash = (digit: string) => digit.repeat(64)
const times = <A>(n: number, value: A) => Array.from({ length: n }, () => value)
const created_at = new Date(0)

/** An acceptable row of each table, next to the rows that the database of these tests holds. */
const good: Record<string, Row> = {
  accounts: { id: id(9), name: "n", created_at },
  workspaces: { id: id(9), account_id: id(1), name: "n", is_default: false, created_at },
  idempotency_records: {
    account_id: id(1),
    key_hash: Buffer.alloc(32, 9),
    credential_id: id(2),
    fingerprint: Buffer.alloc(32),
    created_at
  },
  api_keys: { hash: Buffer.alloc(32, 9), account_id: id(1), name: "n", role: "management", created_at },
  links: {
    id: id(9),
    account_id: id(1),
    workspace_id: id(11),
    purpose: "replace",
    credential_id: id(1),
    hash: Buffer.alloc(32),
    created_at,
    expires_at: created_at,
    public_key: Buffer.alloc(65),
    ...plainSealedKey()
  },
  keks: { id: "kek-9", check_value: Buffer.alloc(16) },
  credential_parkings: {
    account_id: id(1),
    credential_id: id(1),
    model: "a/model",
    key_version: 1,
    cause: "rejected",
    strikes: 0,
    until: created_at,
    parked_at: created_at
  },
  credential_use: {
    account_id: id(1),
    credential_id: id(1),
    last_leased_at: created_at,
    last_succeeded_at: created_at,
    last_failed_at: created_at,
    last_failure: "rejected",
    last_failed_version: 1,
    last_refused_at: created_at,
    last_refused_status: 400,
    last_refused_code: "invalid_value",
    refused_since: created_at,
    refused_in_a_row: 1
  },
  pools: { account_id: id(1), workspace_id: id(11), provider: "cohere" },
  audit_entries: { seq: 9, at: created_at, operation: id(9), events: "[]" },
  keyring_instances: { id: id(9), name: "n", kek_ids: ["kek-9"], seen_at: created_at },
  event_cursors: { id: 1, seq: 9 },
  audit_checkpoints: { number: 9, last_seq: 9, digests: Buffer.alloc(40), hash: Buffer.alloc(32) },
  credentials: {
    ...plainCredential(WorkspaceId.make(id(11)), id(9)),
    ...plainSealedKey(),
    account_id: id(1),
    created_at,
    sort_order: 0
  }
}

/** Two accounts, each with its default workspace and credentials, and one row in each of the other tables. */
const seed = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    for (const n of [1, 2]) {
      yield* sql`INSERT INTO accounts ${sql.insert({ ...good["accounts"], id: id(n) })}`
      const workspace = { ...good["workspaces"], id: id(10 + n), account_id: id(n), is_default: true }
      yield* sql`INSERT INTO workspaces ${sql.insert(workspace)}`
    }
    yield* sql`INSERT INTO api_keys ${sql.insert({ ...good["api_keys"], hash: Buffer.alloc(32, 1) })}`
    yield* sql`INSERT INTO links ${sql.insert({ ...good["links"], id: id(1) })}`
    yield* sql`INSERT INTO keks ${sql.insert({ ...good["keks"], id: "kek-1" })}`
    yield* sql`INSERT INTO keyring_instances ${sql.insert({ ...good["keyring_instances"], id: id(1) })}`
    for (const account of [1, 2]) {
      const pool = {
        account_id: id(account),
        workspace_id: id(10 + account),
        provider: good["credentials"]?.["provider"]
      }
      yield* sql`INSERT INTO pools ${sql.insert(pool)}`
    }
    yield* sql`INSERT INTO audit_entries ${sql.insert({ ...good["audit_entries"], seq: 1, operation: id(1) })}`
    yield* sql`INSERT INTO audit_checkpoints ${sql.insert({ ...good["audit_checkpoints"], number: 1 })}`
    for (const n of [1, 2]) yield* sql`INSERT INTO credentials ${sql.insert({ ...good["credentials"], id: id(n) })}`
    const others = { ...good["credentials"], id: id(4), account_id: id(2), workspace_id: id(12) }
    yield* sql`INSERT INTO credentials ${sql.insert(others)}`
    yield* sql`INSERT INTO credential_parkings ${sql.insert({ ...good["credential_parkings"], model: "parked" })}`
    yield* sql`INSERT INTO credential_use ${sql.insert({ ...good["credential_use"], credential_id: id(2) })}`
    const record = { ...good["idempotency_records"], key_hash: Buffer.alloc(32, 1), credential_id: id(1) }
    yield* sql`INSERT INTO idempotency_records ${sql.insert(record)}`
  })

class Migrated extends Context.Service<Migrated, SqlClient.SqlClient>()("byok/test/Migrated") {}

const MigratedLive = Layer.effect(
  Migrated,
  Effect.gen(function* () {
    const sql = yield* adminClient(yield* migratedDatabase)
    yield* seed(sql)
    return sql
  })
)

class Accepted extends Data.TaggedError("Accepted") {}

/** The name of the constraint that refuses a row, or column for NOT NULL, and "accepted" for none; nothing is kept. */
const answerTo = (table: string, changes: Row) =>
  Effect.gen(function* () {
    const sql = yield* Migrated
    const insert = sql`INSERT INTO ${sql(table)} ${sql.insert({ ...good[table], ...changes })}`
    const exit = yield* Effect.exit(sql.withTransaction(Effect.andThen(insert, new Accepted())))
    assert(Exit.isFailure(exit))
    const error = Cause.squash(exit.cause)
    if (error instanceof Accepted) return "accepted"
    const cause: unknown = Reflect.get(Object(Reflect.get(Object(error), "reason")), "cause")
    return String(Reflect.get(Object(cause), "constraint") ?? Reflect.get(Object(cause), "column") ?? error)
  })

interface Cases {
  readonly refused: ReadonlyArray<Row>
  readonly accepted: ReadonlyArray<Row>
}

/** Values of one column that a constraint refuses and accepts, beside an otherwise acceptable row. */
const values = (column: string, refused: ReadonlyArray<unknown>, accepted: ReadonlyArray<unknown>): Cases => ({
  refused: refused.map((value) => ({ [column]: value })),
  accepted: accepted.map((value) => ({ [column]: value }))
})
const bytes = (length: number, fill?: number) => Buffer.alloc(length, fill)
/** Bytes of one length only. */
const fixed = (column: string, length: number) =>
  values(column, [bytes(0), bytes(length - 1), bytes(length + 1)], [bytes(length)])
const names = values("name", ["", "n".repeat(256)], ["n".repeat(255), "😀".repeat(255)])
const kekIds = (column: string) =>
  values(column, ["", "a".repeat(65), "ä", "a b", "a\n", "a:b"], ["a", "a".repeat(64), "A-z_0.9"])
/** Every provider of the domain, except `openai`, whose pool is stored. */
const providers = values(
  "provider",
  ["", "Openai", "open ai", "a/b/c", "a/", "/a", "a\n", "a".repeat(65)],
  Provider.literals.filter((provider) => provider !== "openai")
)
/** No list holds NULL (D23). */
const lists = (column: string) =>
  values(column, [times(101, "m"), ["m", null]], [null, [], [""], ["b", "a", "b", " ,"], times(100, "m")])

const withoutKeys = { public_key: null, kek_id: null, wrapped_dek: null, sealed: null }

/** Every constraint by table and name. */
const constraints: Record<string, Record<string, Cases>> = {
  accounts: {
    accounts_pkey: values("id", [id(1)], [id(3)]),
    accounts_name_check: names
  },
  workspaces: {
    workspaces_pkey: values("id", [id(11)], [id(13), id(12)]),
    workspaces_account_id_fkey: values("account_id", [id(3)], [id(2)]),
    workspaces_name_check: names,
    workspaces_default: values("is_default", [true], [false])
  },
  api_keys: {
    api_keys_pkey: values("hash", [bytes(32, 1)], [bytes(32, 2)]),
    api_keys_hash_check: fixed("hash", 32),
    api_keys_account_id_fkey: values("account_id", [id(3)], [id(2)]),
    api_keys_name_check: names,
    api_keys_role_check: values("role", ["owner", ""], ["viewer", "ordinary"])
  },
  links: {
    links_pkey: values("id", [id(1)], [id(2)]),
    links_account_id_fkey: values("account_id", [id(3)], [id(2)]),
    links_purpose_check: {
      refused: ["", "admin"].map((purpose) => ({ purpose, credential_id: null })),
      accepted: [{ purpose: "manage", credential_id: null }]
    },
    links_credential: {
      refused: [{ credential_id: null }, { purpose: "manage" }],
      accepted: [{ purpose: "connect", credential_id: null }]
    },
    links_return_url_check: values("return_url", ["u".repeat(2049)], [null, "u".repeat(2048)]),
    links_hash_check: fixed("hash", 32),
    links_day: values("expires_at", [new Date(86_400_001)], [new Date(86_400_000)]),
    links_ended_check: { refused: [{ ...withoutKeys, ended: "over" }], accepted: [{ ...withoutKeys, ended: "used" }] },
    links_public_key_check: fixed("public_key", 65),
    links_stored_label_check: values("stored_label", ["four", "eleven.eleve"], ["...ab", null]),
    links_keys: { refused: [{ public_key: null }, { sealed: null }], accepted: [withoutKeys] },
    links_over: { refused: [{ ended: "revoked" }], accepted: [{ ...withoutKeys, ended: "revoked" }] }
  },
  keks: {
    keks_pkey: values("id", ["kek-1"], ["KEK-1"]),
    keks_id_check: kekIds("id"),
    keks_check_value_check: fixed("check_value", 16),
    keks_wraps_check: values("wraps", [-1], [0, 2 ** 33])
  },
  pools: {
    pools_pkey: { refused: [{ provider: "openai" }], accepted: [{ account_id: id(2), workspace_id: id(12) }] },
    pools_workspace: { refused: [{ workspace_id: id(12) }], accepted: [{}] },
    pools_provider_check: providers,
    pools_members_check: values("members", [-1], [0, 1]),
    pools_next_order_check: values("next_order", [-1], [0, 1]),
    pools_bytes_check: values("bytes", [-1], [0, 1])
  },
  audit_entries: {
    audit_entries_pkey: values("seq", [1], [2]),
    audit_entries_operation: values("operation", [id(1)], [id(2)])
  },
  keyring_instances: { keyring_instances_pkey: values("id", [id(1)], [id(2)]) },
  event_cursors: {
    event_cursors_id_check: values("id", [0, 2], [1]),
    event_cursors_done_check: values("done", [-1], [0]),
    event_cursors_failures_check: values("failures", [-1], [0]),
    event_cursors_pkey: { refused: [], accepted: [{}] }
  },
  audit_checkpoints: {
    audit_checkpoints_pkey: values("number", [1], [2]),
    audit_checkpoints_hash_check: fixed("hash", 32)
  },
  credential_parkings: {
    credential_parkings_pkey: {
      refused: [{ model: "parked" }],
      accepted: [{ model: "parked", credential_id: id(2) }, { model: "" }]
    },
    credential_parkings_credential: values("credential_id", [id(3)], [id(2)]),
    credential_parkings_key_version_check: values("key_version", [0], [2]),
    credential_parkings_cause_check: values("cause", ["", "Leaked", "a b"], ["rate_limited"]),
    credential_parkings_strikes_check: values("strikes", [-1], [1]),
    credential_parkings_epoch_check: values("epoch", [-1], [1]),
    credential_parkings_leaked: {
      refused: [{ cause: "leaked" }, { cause: "leaked", until: null }, { cause: "leaked", model: "" }],
      accepted: [{ cause: "leaked", model: "", until: null }]
    }
  },
  credential_use: {
    credential_use_pkey: {
      refused: [{ credential_id: id(2) }],
      accepted: [{}, { account_id: id(2), credential_id: id(4) }]
    },
    credential_use_credential: { refused: [{ credential_id: id(3) }, { account_id: id(2) }], accepted: [{}] },
    credential_use_last_failure_check: values("last_failure", ["", "Rejected", "a b"], ["forbidden"]),
    credential_use_last_failed_version_check: values("last_failed_version", [0, -1], [1]),
    credential_use_last_refused_code_check: values(
      "last_refused_code",
      ["", "two words", "é", "x".repeat(65)],
      ["x".repeat(64), "a-code:of~1"]
    ),
    credential_use_refused_in_a_row_check: values("refused_in_a_row", [-1], [0]),
    credential_use_failed: {
      refused: [{ last_failed_at: null }, { last_failure: null }],
      accepted: [{ last_failed_at: null, last_failure: null }]
    }
  },
  idempotency_records: {
    idempotency_records_pkey: {
      refused: [{ key_hash: bytes(32, 1) }],
      accepted: [{ key_hash: bytes(32, 1), account_id: id(2), credential_id: id(4) }]
    },
    idempotency_records_key_hash_check: fixed("key_hash", 32),
    idempotency_records_fingerprint_check: fixed("fingerprint", 32),
    idempotency_records_account_id_credential_id_key: { refused: [{ credential_id: id(1) }], accepted: [{}] }
  },
  credentials: {
    credentials_pkey: {
      refused: [{ id: id(1) }],
      accepted: [{ id: id(3) }, { id: id(1), account_id: id(2), workspace_id: id(12) }]
    },
    credentials_pool: {
      refused: [
        { workspace_id: id(12) },
        { workspace_id: id(13) },
        { account_id: id(2) },
        { account_id: id(3) },
        { provider: "xai" }
      ],
      accepted: [{ account_id: id(2), workspace_id: id(12) }]
    },
    credentials_name_check: {
      refused: [{ name: "n".repeat(256) }],
      accepted: [...names.accepted, { name: null }, { name: "" }]
    },
    credentials_label_check: values("label", ["", "sk-0123456789-0123456789"], ["***...***", "*...ab", "a...b"]),
    credentials_allowed_api_key_hashes_check: values(
      "allowed_api_key_hashes",
      [
        [],
        times(101, hash("a")),
        [hash("A")],
        [hash("g")],
        ["a".repeat(63)],
        ["a".repeat(65)],
        [hash("a"), ""],
        [hash("a"), null],
        [`${hash("a")}\n`],
        [`${hash("a")},${hash("b")}`]
      ],
      [null, [hash("a")], [hash("0"), hash("f"), hash("0")], times(100, hash("a"))]
    ),
    credentials_allowed_models_check: lists("allowed_models"),
    credentials_allowed_user_ids_check: lists("allowed_user_ids"),
    credentials_declared_region_check: values(
      "declared_region",
      ["", "eu", "Europe", "asia"],
      [null, "global", "europe", "us"]
    ),
    credentials_sort_order_check: values("sort_order", [-1], [2147483647]),
    credentials_kek_id_check: kekIds("kek_id"),
    credentials_wrapped_dek_check: fixed("wrapped_dek", 60),
    credentials_sealed_check: values("sealed", [bytes(0), bytes(62)], [bytes(300_000)]),
    credentials_flags: {
      refused: [
        { is_fallback: true, is_byok_only: true },
        { is_fallback: true, is_required: true },
        { is_fallback: true, is_byok_only: true, is_required: true }
      ],
      accepted: [{ is_fallback: true }, { is_byok_only: true, is_required: true }]
    }
  }
}
const cases = Object.entries(constraints).flatMap(([table, byName]) =>
  Object.entries(byName).map(([name, { accepted, refused }]) => [table, name, refused, accepted] as const)
)

layer(MigratedLive)("the tables repeat the rules of the domain (sections 4.1 and 8)", (it) => {
  it.effect.each(cases)(
    "table %s: %s refuses the rows that break its rule, and accepts others",
    function* ([table, name, refused, accepted]) {
      assert.deepStrictEqual(
        yield* Effect.forEach(refused, (row) => answerTo(table, row)),
        refused.map(() => name)
      )
      assert.deepStrictEqual(
        yield* Effect.forEach(accepted, (row) => answerTo(table, row)),
        accepted.map(() => "accepted")
      )
    }
  )

  it.effect("every constraint of the database has a case in this test (control)", function* () {
    const sql = yield* Migrated
    const found = yield* sql<{ name: string }>`
        SELECT conname AS name FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n' AND conrelid <> 'effect_sql_migrations'::regclass
        UNION
        SELECT indexrelid::regclass::text FROM pg_index
        WHERE indisunique AND indrelid <> 'effect_sql_migrations'::regclass
        AND indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)`
    assert.sameMembers(
      found.map(({ name }) => name),
      cases.map(([, name]) => name)
    )
  })
})
