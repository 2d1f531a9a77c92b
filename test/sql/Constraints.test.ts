import { assert, layer } from "@effect/vitest"
import { Cause, Context, Data, Effect, Exit, Layer, Redacted } from "effect"
import type { SqlClient } from "effect/sql"
import { Provider } from "../../src/domain/Provider.ts"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { migrate } from "../../src/sql/Migrations.ts"
import { adminClient, databaseSettings, freshDatabase } from "../support/database/freshDatabase.ts"

type Row = Readonly<Record<string, unknown>>

const id = (n: number) => `01935f6a-0000-7000-8000-${String(n).padStart(12, "0")}`
const hash = (digit: string) => digit.repeat(64)
const times = <A>(n: number, value: A) => Array.from({ length: n }, () => value)
const created_at = new Date(0)

/** An acceptable row of each table, next to the rows that the database of these tests holds. */
const good: Record<string, Row> = {
  accounts: { id: id(9), name: "n", created_at },
  workspaces: { id: id(9), account_id: id(1), name: "n", is_default: false, created_at },
  receipts: {
    account_id: id(1),
    key_hash: Buffer.alloc(32, 9),
    credential_id: id(2),
    fingerprint: Buffer.alloc(32),
    created_at
  },
  api_keys: { hash: Buffer.alloc(32, 9), account_id: id(1), name: "n", management: true, created_at },
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
    last_failure: "rejected"
  },
  audit_entries: { seq: 9, at: created_at, events: "[]" },
  audit_checkpoints: { number: 9, last_seq: 9, digests: Buffer.alloc(40), hash: Buffer.alloc(32) },
  credentials: {
    id: id(9),
    account_id: id(1),
    workspace_id: id(11),
    provider: "openai",
    name: null,
    label: "sk-...AbCd",
    created_at,
    disabled: false,
    is_fallback: false,
    is_required: false,
    is_byok_only: false,
    allowed_api_key_hashes: null,
    allowed_models: null,
    allowed_user_ids: null,
    declared_region: null,
    declared_zdr: null,
    sort_order: 0,
    kek_id: "kek-1",
    wrapped_dek: Buffer.alloc(60),
    sealed: Buffer.alloc(63)
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
    yield* sql`INSERT INTO keks ${sql.insert({ ...good["keks"], id: "kek-1" })}`
    yield* sql`INSERT INTO audit_entries ${sql.insert({ ...good["audit_entries"], seq: 1 })}`
    yield* sql`INSERT INTO audit_checkpoints ${sql.insert({ ...good["audit_checkpoints"], number: 1 })}`
    for (const n of [1, 2]) yield* sql`INSERT INTO credentials ${sql.insert({ ...good["credentials"], id: id(n) })}`
    const others = { ...good["credentials"], id: id(4), account_id: id(2), workspace_id: id(12) }
    yield* sql`INSERT INTO credentials ${sql.insert(others)}`
    yield* sql`INSERT INTO credential_parkings ${sql.insert({ ...good["credential_parkings"], model: "parked" })}`
    yield* sql`INSERT INTO credential_use ${sql.insert({ ...good["credential_use"], credential_id: id(2) })}`
    const receipt = { ...good["receipts"], key_hash: Buffer.alloc(32, 1), credential_id: id(1) }
    yield* sql`INSERT INTO receipts ${sql.insert(receipt)}`
  })

class Migrated extends Context.Service<Migrated, SqlClient.SqlClient>()("byok/test/Migrated") {}

const MigratedLive = Layer.effect(
  Migrated,
  Effect.gen(function* () {
    const url = yield* freshDatabase
    yield* migrate(parseDatabaseUrl(Redacted.make(url)), databaseSettings)
    const sql = yield* adminClient(url)
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

const names = {
  refused: [{ name: "" }, { name: "n".repeat(256) }],
  accepted: [{ name: "n".repeat(255) }, { name: "😀".repeat(255) }]
}
const kekIds = (column: string) => ({
  refused: ["", "a".repeat(65), "ä", "a b", "a\n", "a:b"].map((text) => ({ [column]: text })),
  accepted: ["a", "a".repeat(64), "A-z_0.9"].map((text) => ({ [column]: text }))
})
const lists = (column: string) => ({
  refused: [{ [column]: times(101, "m") }],
  accepted: [null, [], [""], ["b", "a", "b", " ,"], times(100, "m")].map((list) => ({ [column]: list }))
})

/** Every constraint by name, with rows that it refuses and rows beside them that it accepts. */
const constraints: ReadonlyArray<
  readonly [
    table: string,
    name: string,
    cases: { readonly refused: ReadonlyArray<Row>; readonly accepted: ReadonlyArray<Row> }
  ]
> = [
  ["accounts", "accounts_pkey", { refused: [{ id: id(1) }], accepted: [{ id: id(3) }] }],
  ["accounts", "accounts_name_check", names],
  ["workspaces", "workspaces_pkey", { refused: [{ id: id(11) }], accepted: [{ id: id(13) }, { id: id(12) }] }],
  ["workspaces", "workspaces_account_id_fkey", { refused: [{ account_id: id(3) }], accepted: [{ account_id: id(2) }] }],
  ["workspaces", "workspaces_name_check", names],
  ["workspaces", "workspaces_default", { refused: [{ is_default: true }], accepted: [{ is_default: false }] }],
  [
    "api_keys",
    "api_keys_pkey",
    { refused: [{ hash: Buffer.alloc(32, 1) }], accepted: [{ hash: Buffer.alloc(32, 2) }] }
  ],
  [
    "api_keys",
    "api_keys_hash_check",
    { refused: [0, 31, 33].map((n) => ({ hash: Buffer.alloc(n) })), accepted: [{ hash: Buffer.alloc(32) }] }
  ],
  ["api_keys", "api_keys_account_id_fkey", { refused: [{ account_id: id(3) }], accepted: [{ account_id: id(2) }] }],
  ["api_keys", "api_keys_name_check", names],
  ["keks", "keks_pkey", { refused: [{ id: "kek-1" }], accepted: [{ id: "KEK-1" }] }],
  ["keks", "keks_id_check", kekIds("id")],
  [
    "keks",
    "keks_check_value_check",
    {
      refused: [0, 15, 17].map((n) => ({ check_value: Buffer.alloc(n) })),
      accepted: [{ check_value: Buffer.alloc(16) }]
    }
  ],
  ["keks", "keks_wraps_check", { refused: [{ wraps: -1 }], accepted: [{ wraps: 0 }, { wraps: 2 ** 33 }] }],
  ["audit_entries", "audit_entries_pkey", { refused: [{ seq: 1 }], accepted: [{ seq: 2 }] }],
  ["audit_checkpoints", "audit_checkpoints_pkey", { refused: [{ number: 1 }], accepted: [{ number: 2 }] }],
  [
    "audit_checkpoints",
    "audit_checkpoints_hash_check",
    { refused: [0, 31, 33].map((n) => ({ hash: Buffer.alloc(n) })), accepted: [{ hash: Buffer.alloc(32, 1) }] }
  ],
  [
    "credential_parkings",
    "credential_parkings_pkey",
    { refused: [{ model: "parked" }], accepted: [{ model: "parked", credential_id: id(2) }, { model: "" }] }
  ],
  [
    "credential_parkings",
    "credential_parkings_credential",
    { refused: [{ credential_id: id(3) }], accepted: [{ credential_id: id(2) }] }
  ],
  [
    "credential_parkings",
    "credential_parkings_key_version_check",
    { refused: [{ key_version: 0 }], accepted: [{ key_version: 2 }] }
  ],
  [
    "credential_parkings",
    "credential_parkings_cause_check",
    { refused: ["", "Leaked", "a b"].map((cause) => ({ cause })), accepted: [{ cause: "rate_limited" }] }
  ],
  [
    "credential_parkings",
    "credential_parkings_strikes_check",
    { refused: [{ strikes: -1 }], accepted: [{ strikes: 1 }] }
  ],
  [
    "credential_parkings",
    "credential_parkings_leaked",
    {
      refused: [{ cause: "leaked" }, { cause: "leaked", until: null }, { cause: "leaked", model: "" }],
      accepted: [{ cause: "leaked", model: "", until: null }]
    }
  ],
  [
    "credential_use",
    "credential_use_pkey",
    { refused: [{ credential_id: id(2) }], accepted: [{}, { account_id: id(2), credential_id: id(4) }] }
  ],
  [
    "credential_use",
    "credential_use_credential",
    { refused: [{ credential_id: id(3) }, { account_id: id(2) }], accepted: [{}] }
  ],
  [
    "credential_use",
    "credential_use_last_failure_check",
    {
      refused: ["", "Rejected", "a b"].map((last_failure) => ({ last_failure })),
      accepted: [{ last_failure: "forbidden" }]
    }
  ],
  [
    "credential_use",
    "credential_use_failed",
    {
      refused: [{ last_failed_at: null }, { last_failure: null }],
      accepted: [{ last_failed_at: null, last_failure: null }]
    }
  ],
  [
    "credentials",
    "credentials_pkey",
    {
      refused: [{ id: id(1) }],
      accepted: [{ id: id(3) }, { id: id(1), account_id: id(2), workspace_id: id(12) }]
    }
  ],
  [
    "receipts",
    "receipts_pkey",
    {
      refused: [{ key_hash: Buffer.alloc(32, 1) }],
      accepted: [{ key_hash: Buffer.alloc(32, 1), account_id: id(2), credential_id: id(4) }]
    }
  ],
  [
    "receipts",
    "receipts_key_hash_check",
    { refused: [0, 31, 33].map((n) => ({ key_hash: Buffer.alloc(n) })), accepted: [{ key_hash: Buffer.alloc(32) }] }
  ],
  [
    "receipts",
    "receipts_fingerprint_check",
    {
      refused: [0, 31, 33].map((n) => ({ fingerprint: Buffer.alloc(n) })),
      accepted: [{ fingerprint: Buffer.alloc(32) }]
    }
  ],
  ["receipts", "receipts_account_id_credential_id_key", { refused: [{ credential_id: id(1) }], accepted: [{}] }],
  [
    "credentials",
    "credentials_workspace",
    {
      refused: [{ workspace_id: id(12) }, { workspace_id: id(13) }, { account_id: id(2) }, { account_id: id(3) }],
      accepted: [{ account_id: id(2), workspace_id: id(12) }]
    }
  ],
  [
    "credentials",
    "credentials_provider_check",
    {
      refused: ["", "Openai", "open ai", "a/b/c", "a/", "/a", "a\n", "a".repeat(65)].map((provider) => ({ provider })),
      accepted: Provider.literals.map((provider) => ({ provider }))
    }
  ],
  [
    "credentials",
    "credentials_name_check",
    { refused: [{ name: "n".repeat(256) }], accepted: [...names.accepted, { name: null }, { name: "" }] }
  ],
  [
    "credentials",
    "credentials_label_check",
    {
      refused: [{ label: "" }, { label: "sk-0123456789-0123456789" }],
      accepted: [{ label: "***...***" }, { label: "*...ab" }, { label: "a...b" }]
    }
  ],
  [
    "credentials",
    "credentials_allowed_api_key_hashes_check",
    {
      refused: [
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
      ].map((allowed_api_key_hashes) => ({ allowed_api_key_hashes })),
      accepted: [null, [hash("a")], [hash("0"), hash("f"), hash("0")], times(100, hash("a"))].map(
        (allowed_api_key_hashes) => ({ allowed_api_key_hashes })
      )
    }
  ],
  ["credentials", "credentials_allowed_models_check", lists("allowed_models")],
  ["credentials", "credentials_allowed_user_ids_check", lists("allowed_user_ids")],
  [
    "credentials",
    "credentials_declared_region_check",
    {
      refused: ["", "eu", "Europe", "asia"].map((declared_region) => ({ declared_region })),
      accepted: [null, "global", "europe", "us"].map((declared_region) => ({ declared_region }))
    }
  ],
  [
    "credentials",
    "credentials_sort_order_check",
    { refused: [{ sort_order: -1 }], accepted: [{ sort_order: 2147483647 }] }
  ],
  ["credentials", "credentials_kek_id_check", kekIds("kek_id")],
  [
    "credentials",
    "credentials_wrapped_dek_check",
    {
      refused: [0, 59, 61].map((n) => ({ wrapped_dek: Buffer.alloc(n) })),
      accepted: [{ wrapped_dek: Buffer.alloc(60) }]
    }
  ],
  [
    "credentials",
    "credentials_sealed_check",
    { refused: [0, 62].map((n) => ({ sealed: Buffer.alloc(n) })), accepted: [{ sealed: Buffer.alloc(300_000) }] }
  ],
  [
    "credentials",
    "credentials_flags",
    {
      refused: [
        { is_fallback: true, is_byok_only: true },
        { is_fallback: true, is_required: true },
        { is_fallback: true, is_byok_only: true, is_required: true }
      ],
      accepted: [{ is_fallback: true }, { is_byok_only: true, is_required: true }]
    }
  ]
]

layer(MigratedLive)("the tables repeat the rules of the domain (sections 4.1 and 8)", (it) => {
  it.effect.each(constraints)("%s: %s", ([table, name, { accepted, refused }]) =>
    Effect.gen(function* () {
      assert.deepStrictEqual(
        yield* Effect.forEach(refused, (row) => answerTo(table, row)),
        refused.map(() => name)
      )
      assert.deepStrictEqual(
        yield* Effect.forEach(accepted, (row) => answerTo(table, row)),
        accepted.map(() => "accepted")
      )
    })
  )

  it.effect("no list holds NULL (D23)", () =>
    Effect.gen(function* () {
      const sql = yield* Migrated
      for (const column of ["allowed_models", "allowed_user_ids"]) {
        const changed = Effect.exit(sql.unsafe(`UPDATE credentials SET ${column} = ARRAY['m', NULL]`))
        assert.include(JSON.stringify(yield* changed), `credentials_${column}_check`)
      }
    })
  )

  it.effect("NULL is refused in every column that the domain always fills", () =>
    Effect.gen(function* () {
      const optional = [
        "workspaces.deleted_at",
        "audit_entries.account_id",
        "api_keys.revoked_at",
        "keks.registered_at",
        "keks.retired_at",
        "credential_parkings.until",
        "credential_use.last_leased_at",
        "credential_use.last_succeeded_at",
        ...[
          "name",
          "allowed_api_key_hashes",
          "allowed_models",
          "allowed_user_ids",
          "declared_region",
          "declared_zdr"
        ].map((column) => `credentials.${column}`)
      ]
      const pairs: Record<string, string> = {
        "credential_use.last_failed_at": "credential_use_failed",
        "credential_use.last_failure": "credential_use_failed"
      }
      const sql = yield* Migrated
      const columns = yield* sql<{ table: string; column: string }>`
        SELECT table_name AS "table", column_name AS "column" FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name <> 'effect_sql_migrations'`
      for (const { column, table } of columns) {
        const expected = optional.includes(`${table}.${column}`) ? "accepted" : (pairs[`${table}.${column}`] ?? column)
        assert.strictEqual(yield* answerTo(table, { [column]: null }), expected, `${table}.${column}`)
      }
      assert.isAbove(columns.length, optional.length)
    })
  )

  it.effect("every constraint has a case here (control)", () =>
    Effect.gen(function* () {
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
        constraints.map(([, name]) => name)
      )
    })
  )
})
