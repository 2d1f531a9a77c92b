import { Effect, Layer } from "effect"
import { Statements } from "../support/database/Statements.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { writes } from "../../src/sql/schema/writes.ts"
import { isDefinition, onAllAccounts, usePorts } from "./usePorts.ts"

/** Unique indexes of tables whose rows belong to an account, which do not begin with it. */
const findings = Effect.gen(function* () {
  const { sql } = yield* TestService
  const rows = yield* sql<{ name: string }>`
    SELECT indexrelid::regclass::text AS name FROM pg_index
    JOIN pg_attribute ON attrelid = indrelid AND attname = 'account_id' AND attnotnull
    WHERE indisunique AND indkey[0] <> attnum ORDER BY 1`
  return rows.map(({ name }) => name)
})

const namesTenantTable = /\b(credentials|credential_(?:parkings|use)|workspaces|idempotency_records)\b/
/** The account as a condition, or as part of the key of a join, a comparison or an insert. */
const namesAccount = /\baccount_id"? = |\("?account_id"?, /
const isAstray = (text: string) =>
  namesTenantTable.test(text) && !namesAccount.test(text) && !onAllAccounts.some((pattern) => pattern.test(text))

layerLive(Layer.provideMerge(TestService.layer, Statements.layer))("the rows of tenants are keyed by account", (it) => {
  it.effect("every unique index begins with account_id, except that of API keys by hash", function* () {
    const { sql } = yield* TestService
    assert.deepStrictEqual(yield* findings, ["api_keys_pkey"])
    yield* sql`CREATE UNIQUE INDEX planted ON credentials (id)`
    assert.deepStrictEqual(yield* findings, ["api_keys_pkey", "planted"], "control")
    yield* sql`DROP INDEX planted`
  })

  it.effect("every SQL statement on tenants' tables names the account, except those on all accounts", function* () {
    const statements = yield* Statements
    yield* usePorts

    const seen = Array.from(statements).filter((text) => namesTenantTable.test(text) && !isDefinition(text))
    assert.deepStrictEqual(seen.filter(isAstray), [])
    for (const pattern of onAllAccounts)
      assert.isTrue(
        seen.some((text) => pattern.test(text)),
        pattern.source
      )
    assert.isAtLeast(seen.length, 45)
  })

  it.effect("every SQL statement of a function that writes names the account", () =>
    Effect.sync(() => {
      const statements = writes
        .flatMap((text) => text.split(/;|CREATE FUNCTION .*\(/))
        .filter((text) => /\b(FROM|INTO|UPDATE)\b/.test(text))
      assert.isAtLeast(statements.length, 15)
      assert.deepStrictEqual(
        // A whole row has its account.
        statements.filter(
          (text) => namesTenantTable.test(text) && !namesAccount.test(text) && !text.includes("VALUES (new.*)")
        ),
        []
      )
    })
  )

  it.effect("the check finds a statement that selects by an id without the account (control)", () =>
    Effect.sync(() => {
      assert.isTrue(isAstray("SELECT account_id, label FROM credentials WHERE id = $1"))
      assert.isTrue(isAstray("DELETE FROM idempotency_records WHERE credential_id = ANY($1)"))
      assert.isTrue(isAstray("DELETE FROM credential_parkings WHERE credential_id = $1"))
      assert.isFalse(isAstray("SELECT label FROM credentials WHERE account_id = $1 AND id = $2"))
    })
  )
})
