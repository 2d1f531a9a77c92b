import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { migrate } from "../support/database/migrate.ts"
import { adminClient, databaseSettings, freshDatabase } from "../support/database/freshDatabase.ts"
import { releaseBefore, unpackRelease } from "../support/process/releases.ts"
import { runNode } from "../support/process/runNode.ts"
import { catalogueOf } from "./catalogueOf.ts"
import { incompatibilities } from "./incompatibilities.ts"

/** A database as the newest release leaves it. */
const released = Effect.gen(function* () {
  const { script } = yield* unpackRelease(releaseBefore)
  const url = yield* freshDatabase
  const { code, stderr } = yield* runNode([script, "migrate"], { variables: { DATABASE_URL: url } })
  assert.strictEqual(code, 0, stderr)
  return { sql: yield* adminClient(url), target: parseDatabaseUrl(Redacted.make(url)) }
})

/** No statement of 1.0.0 names this key; the rolling upgrade repeats creates on both versions. */
const unused = ["receipts: unique key (credential_id) is gone"]

/** Migrations that the release would not survive, with what is found. */
const planted: ReadonlyArray<readonly [statement: string, found: ReadonlyArray<string>]> = [
  ["ALTER TABLE receipts RENAME TO repeats", ["table receipts is gone"]],
  [
    "ALTER TABLE credentials RENAME COLUMN label TO masked",
    ["credentials: column label is gone", "credentials: new column masked must be set"]
  ],
  [
    "ALTER TABLE credentials ALTER COLUMN sort_order TYPE bigint",
    ["credentials: column sort_order is bigint, which was integer"]
  ],
  [
    "ALTER TABLE credentials ALTER COLUMN allowed_models SET NOT NULL",
    ["credentials: column allowed_models must be set"]
  ],
  [
    "ALTER TABLE credentials ADD COLUMN colour text; ALTER TABLE credentials ALTER COLUMN colour SET NOT NULL",
    ["credentials: new column colour must be set"]
  ],
  [
    "ALTER TABLE audit_entries ALTER COLUMN seq DROP IDENTITY IF EXISTS, ALTER COLUMN seq DROP DEFAULT",
    ["audit_entries: column seq has no default any more"]
  ],
  ["ALTER TABLE receipts DROP CONSTRAINT receipts_pkey", ["receipts: unique key (account_id, key_hash) is gone"]],
  ["CREATE UNIQUE INDEX planted ON credentials (label)", ["credentials: unique key (label) is new"]],
  [
    "ALTER TABLE credentials ADD CONSTRAINT planted CHECK (name <> 'x')",
    ["credentials: new rule on (name): CHECK ((name <> 'x'::text))"]
  ],
  [
    "ALTER TABLE audit_entries ADD FOREIGN KEY (seq) REFERENCES audit_entries (seq)",
    ["audit_entries: new rule on (seq): reference to audit_entries"]
  ]
]

describe(`the schema of this version beside programs of ${releaseBefore}`, () => {
  it.live("has everything that they rely on, until the migration is finished", () =>
    Effect.gen(function* () {
      const { sql, target } = yield* released
      const before = yield* catalogueOf(sql)
      assert.includeMembers(Object.keys(before), ["credentials", "workspaces", "receipts", "audit_entries"])
      assert.isAbove((yield* migrate(target, databaseSettings)).length, 0)
      assert.deepStrictEqual(incompatibilities(before, yield* catalogueOf(sql)), unused)
      yield* migrate(target, databaseSettings, "finish")
      assert.sameMembers(
        [...incompatibilities(before, yield* catalogueOf(sql))],
        [...unused, "workspaces: unique key (id) is gone", "credentials: unique key (id) is gone"]
      )
    })
  )

  it.live("is refused when a migration takes from them what they rely on", () =>
    Effect.gen(function* () {
      const { sql } = yield* released
      const before = yield* catalogueOf(sql)
      for (const [statement, found] of planted) {
        const rolledBack = sql.withTransaction(
          Effect.gen(function* () {
            for (const part of statement.split("; ")) yield* sql.unsafe(part)
            return yield* Effect.fail({ after: yield* Effect.orDie(catalogueOf(sql)) })
          })
        )
        const { after } = yield* Effect.flip(Effect.catchTag(rolledBack, "SqlError", Effect.die))
        assert.deepStrictEqual(incompatibilities(before, after), found, statement)
      }
      assert.deepStrictEqual(incompatibilities(before, yield* catalogueOf(sql)), [])
    })
  )
})
