import { Context, Effect, Fiber, Layer } from "effect"
import { type WorkspaceId } from "../../src/domain/Identifiers.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import * as CredentialsLive from "../../src/service/credentials/Credentials.ts"
import { holdOpen, untilWaiting } from "../support/database/transactions.ts"
import { minimal } from "../support/http/Bodies.ts"
import { create, type Header } from "../support/http/HttpProbe.ts"
import { assertInvalid } from "../support/http/Refusal.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { assert, describe, it } from "../support/it.ts"

/** Runs while the key is sealed: after the check of the workspace and before the insert. */
let meanwhile: Effect.Effect<unknown> = Effect.void

const interrupted = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const cipher = Context.get(parts, Cipher)
  const replaced = Context.add(parts, Cipher, {
    ...cipher,
    seal: (...given) => Effect.tap(cipher.seal(...given), () => meanwhile)
  })
  return Context.add(replaced, Credentials, yield* Effect.provideContext(CredentialsLive.make, replaced))
})

const service = TestService.layerWith({ parts: interrupted })

const notOurs = { path: ["workspace_id"], message: "is not a workspace of this account" }
const noDefault = { path: ["workspace_id"], message: "is required: the default workspace is deleted" }
const withKey: ReadonlyArray<Header> = [["Idempotency-Key", "a-key"]]

const begin = Effect.gen(function* () {
  meanwhile = Effect.void
  const context = yield* Layer.build(Layer.fresh(service))
  const opened = Context.get(context, TestService)
  const accounts = Context.get(context, Accounts)
  return { ...opened, accounts, context, tenant: yield* opened.newTenant }
})

describe("a create whose workspace is deleted meanwhile", () => {
  it.live.each([
    ["without an idempotency key", []],
    ["with an idempotency key", withKey]
  ] as const)("%s is refused as if the workspace had been deleted before (F12, D6, D43)", function* ([, headers]) {
    const { accounts, rowCount, sql, tenant, url } = yield* begin
    const { account_id, management_key, workspace_id } = tenant
    const other = (yield* Effect.orDie(accounts.createWorkspace(account_id, "w"))).workspace_id
    const deleting = (id: WorkspaceId) => {
      meanwhile = Effect.orDie(accounts.deleteWorkspace(id))
    }

    deleting(other)
    const body = { ...minimal, workspace_id: other }
    assertInvalid(yield* create(url, management_key, body, headers), notOurs)
    deleting(workspace_id)
    assertInvalid(yield* create(url, management_key, minimal, headers), noDefault)
    assert.strictEqual(yield* rowCount, 0)
    assert.lengthOf(yield* sql`SELECT 1 FROM idempotency_records`, 0)
    assert.lengthOf(yield* sql`SELECT 1 FROM audit_entries WHERE events::text LIKE '%credential.create%'`, 0)
  })

  it.live("waits for an uncommitted deletion of the workspace, and is refused once that commits (F12)", function* () {
    const { rowCount, sql, tenant, url } = yield* begin
    const { workspace_id } = tenant
    const commit = yield* holdOpen(sql, `UPDATE workspaces SET deleted_at = now() WHERE id = '${workspace_id}'`)
    const answer = yield* Effect.forkChild(create(url, tenant.management_key, minimal))
    yield* untilWaiting(sql, 1)
    yield* commit
    assertInvalid(yield* Fiber.join(answer), noDefault)
    assert.strictEqual(yield* rowCount, 0)
  })

  it.live(
    "waits for an uncommitted create in the default workspace, and then refuses to delete it (D43)",
    function* () {
      const { accounts, sql, tenant, url } = yield* begin
      const commit = yield* holdOpen(sql, "LOCK TABLE audit_entries IN SHARE ROW EXCLUSIVE MODE")
      const created = yield* Effect.forkChild(create(url, tenant.management_key, minimal))
      yield* untilWaiting(sql, 1)
      const deletion = yield* Effect.forkChild(Effect.flip(accounts.deleteWorkspace(tenant.workspace_id)))
      yield* untilWaiting(sql, 2)
      yield* commit
      assert.strictEqual((yield* Fiber.join(created)).status, 201)
      assert.strictEqual((yield* Fiber.join(deletion))._tag, "DefaultWorkspaceInUse")
    }
  )
})
