import { randomUUID } from "node:crypto"
import { assert } from "@effect/vitest"
import { DateTime, Duration, Effect, Layer, Option, Result } from "effect"
import { CredentialId } from "../../src/domain/CredentialId.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import { KeyUse } from "../../src/port/KeyUse.ts"
import { Readiness } from "../../src/port/Readiness.ts"
import { Receipts } from "../../src/port/Receipts.ts"
import { WorkspaceResolver } from "../../src/port/WorkspaceResolver.ts"
import { WrappedKeys } from "../../src/port/WrappedKeys.ts"
import { Statements } from "../support/database/Statements.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { layerLive } from "../support/process/layerLive.ts"

/** Unique indexes of tables whose rows belong to an account, which do not begin with it. */
const findings = Effect.gen(function* () {
  const { sql } = yield* TestService
  const rows = yield* sql<{ name: string }>`
    SELECT indexrelid::regclass::text AS name FROM pg_index
    JOIN pg_attribute ON attrelid = indrelid AND attname = 'account_id' AND attnotnull
    WHERE indisunique AND indkey[0] <> attnum ORDER BY 1`
  return rows.map(({ name }) => name)
})

/** Statements on all accounts at once: what names a key-encryption key, old receipts, and a command on one workspace. */
const onAllAccounts = [
  /^\s*WITH RECURSIVE\s+named AS/,
  /FROM credentials\s+WHERE kek_id = (ANY\()?\$1/,
  /^\s*UPDATE workspaces SET deleted_at = \$1\s+WHERE id = \$2/,
  /FROM workspaces WHERE id = \$1$/
]

const namesTenantTable = /\b(credentials|workspaces|receipts)\b/
/** The account as a condition, or as part of the key of a join, a comparison or an insert. */
const namesAccount = /\baccount_id"? = |\("?account_id"?, /
const isDefinition = (text: string) => /^\s*(ALTER|CREATE|DROP|LOCK)\b/.test(text)
const isAstray = (text: string) =>
  namesTenantTable.test(text) && !namesAccount.test(text) && !onAllAccounts.some((pattern) => pattern.test(text))

layerLive(Layer.provideMerge(TestService.layer, Statements.layer))("the rows of tenants are keyed by account", (it) => {
  it.effect("every unique index begins with account_id, except that of API keys by hash", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      assert.deepStrictEqual(yield* findings, ["api_keys_pkey"])
      yield* sql`CREATE UNIQUE INDEX planted ON credentials (id)`
      assert.deepStrictEqual(yield* findings, ["api_keys_pkey", "planted"], "control")
      yield* sql`DROP INDEX planted`
    })
  )

  it.effect("every statement names the account, except look-ups of API keys and those on all accounts", () =>
    Effect.gen(function* () {
      const statements = yield* Statements
      const { create, get, ...tenant } = yield* TestService.newTenant
      const other = yield* TestService.newTenant
      const { account_id, management_key_hash, workspace_id } = tenant
      const repository = yield* CredentialRepository
      const accounts = yield* AccountRepository
      const receipts = yield* Receipts
      const workspaces = yield* WorkspaceResolver
      const together = { concurrency: "unbounded" } as const

      const id = CredentialId.make(createdId(yield* create({ ...minimal, workspace_id })))
      yield* get(id)
      yield* create(minimal)
      for (const _ of ["first", "again"]) created(yield* create(minimal, [["Idempotency-Key", "k"]]))
      yield* repository.findById(account_id, id)
      const { credential, sealed } = Option.getOrThrow(yield* repository.findSealed(account_id, id))
      const more = [tenant, other, tenant, other].map((home) => ({ home, id: CredentialId.make(randomUUID()) }))
      yield* Effect.forEach(
        more,
        ({ home, id }) =>
          repository.insert(home.account_id, { ...credential, id, workspace_id: home.workspace_id }, sealed),
        together
      )
      yield* repository.insert(account_id, credential, sealed)
      yield* Effect.forEach(more, ({ home, id }) => repository.findById(home.account_id, id), together)
      yield* Effect.forEach(
        more,
        ({ home }, index) => workspaces.resolve(home.account_id, index < 2 ? home.workspace_id : undefined),
        together
      )
      yield* workspaces.resolve(account_id, undefined)
      const apiKeys = yield* ApiKeys
      yield* Effect.forEach(more, ({ id }) => apiKeys.find(management_key_hash, id), together)
      yield* Effect.forEach(more, () => apiKeys.find(management_key_hash), together)
      yield* apiKeys.ownedBy(account_id, [management_key_hash])
      yield* receipts.forget(Duration.zero, 10)
      yield* (yield* Readiness).problems
      yield* (yield* Readiness).warnings
      yield* (yield* KekRegistry).missing([])
      yield* (yield* KekRegistry).retire("none")
      yield* (yield* KeyUse).list
      yield* (yield* KeyUse).naming([sealed.kek_id], 10)
      yield* (yield* WrappedKeys).replace({ primary: "new", after: undefined, size: 10 }, ({ wrapped_dek }) =>
        Effect.succeed(Result.succeed({ kek_id: "new", wrapped_dek }))
      )
      yield* accounts.listWorkspaces(account_id)
      yield* accounts.listApiKeys(account_id)
      const home = { workspace_id, name: "n", created_at: yield* DateTime.now }
      yield* accounts.createWorkspace(account_id, home)
      yield* accounts.deleteWorkspace(workspace_id, home.created_at)
      yield* accounts.deleteWorkspace(workspace_id, home.created_at)

      const seen = Array.from(statements).filter((text) => namesTenantTable.test(text) && !isDefinition(text))
      assert.deepStrictEqual(seen.filter(isAstray), [])
      for (const pattern of onAllAccounts)
        assert.isTrue(
          seen.some((text) => pattern.test(text)),
          pattern.source
        )
      assert.isAtLeast(seen.length, 25)
    })
  )

  it.effect("a statement that names only an id is found (control)", () =>
    Effect.sync(() => {
      assert.isTrue(isAstray("SELECT account_id, label FROM credentials WHERE id = $1"))
      assert.isTrue(isAstray("DELETE FROM receipts WHERE credential_id = ANY($1)"))
      assert.isFalse(isAstray("SELECT label FROM credentials WHERE account_id = $1 AND id = $2"))
    })
  )
})
