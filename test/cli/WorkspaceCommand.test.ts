import { ringOf } from "../support/keys/keyrings.ts"
import { assert, layerLive } from "../support/it.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"

const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

layerLive(CommandLine.layer)("byok workspace", (it) => {
  it.effect("byok workspace create, list and delete print JSON; delete again prints the same (D40, D43)", function* () {
    const { runJson } = yield* CommandLine
    const account = yield* runJson("account", "create", "--name", "Acme")
    const account_id = textIn(account, "account_id")
    const list = runJson("workspace", "list", "--account", account_id)

    const created = yield* runJson("workspace", "create", "--account", account_id, "--name", "staging")
    assert.deepStrictEqual(Object.keys(created), ["workspace_id"])
    const workspace_id = textIn(created, "workspace_id")
    const [first, second, ...others] = (yield* list)["workspaces"] as Array<Record<string, unknown>>
    assert.deepStrictEqual(others, [])
    assert.deepInclude(first, {
      workspace_id: account["workspace_id"],
      name: "default",
      is_default: true,
      deleted_at: null
    })
    assert.deepInclude(second, { workspace_id, name: "staging", is_default: false, deleted_at: null })
    assert.match(textIn(second ?? {}, "created_at"), iso)

    const deleted = yield* runJson("workspace", "delete", workspace_id, "--yes")
    assert.deepStrictEqual(Object.keys(deleted), ["workspace_id", "deleted_at", "credentials"])
    assert.strictEqual(deleted["workspace_id"], workspace_id)
    assert.match(textIn(deleted, "deleted_at"), iso)
    assert.deepStrictEqual(yield* runJson("workspace", "delete", workspace_id.toUpperCase(), "--yes"), deleted)
    assert.deepInclude(((yield* list)["workspaces"] as Array<object>)[1], {
      workspace_id,
      deleted_at: deleted["deleted_at"]
    })
  })

  it.effect("byok workspace delete refuses a default workspace that has credentials (C5)", function* () {
    const { databaseUrl, run, runJson, sql } = yield* CommandLine
    const account = yield* runJson("account", "create", "--name", "Acme")
    const [account_id, workspace_id] = [textIn(account, "account_id"), textIn(account, "workspace_id")]
    const settings = { DATABASE_URL: databaseUrl, BYOK_KEYRING: ringOf("kek") }
    const create = ["credential", "create", "--account", account_id, "--provider", "groq"]
    assert.strictEqual((yield* runCommand(create, settings, "fake-key-0123456789")).code, 0)
    const remove = run("workspace", "delete", workspace_id, "--yes")

    assert.deepStrictEqual(yield* remove, {
      code: 1,
      stdout: "",
      stderr: "The default workspace is not empty (credentials: 1): make another one the default first.\n"
    })
    const made = yield* runJson("workspace", "create", "--account", account_id, "--name", "next")
    const next = textIn(made, "workspace_id")
    for (let time = 0; time < 2; time++) {
      const result = yield* runJson("workspace", "default", next)
      assert.deepStrictEqual(result, { workspace_id: next, is_default: true })
    }
    assert.include((yield* remove).stdout, "credentials   1\n")
    assert.strictEqual((yield* run("workspace", "default", workspace_id)).stderr, "There is no such workspace.\n")
    const rows = yield* sql`
        SELECT id, is_default, deleted_at IS NULL AS lives FROM workspaces WHERE account_id = ${account_id} ORDER BY id`
    assert.deepEqual(
      rows.map((row) => ({ ...row })),
      [
        { id: workspace_id, is_default: false, lives: false },
        { id: next, is_default: true, lives: true }
      ]
    )
    const events = yield* sql`
        SELECT 1 FROM audit_entries WHERE account_id = ${account_id} AND events::text LIKE '%workspace.default%'`
    assert.lengthOf(events, 1, "the second time changes nothing")
  })
})
