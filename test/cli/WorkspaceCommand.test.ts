import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"

const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

layerLive(CommandLine.layer)("byok workspace", (it) => {
  it.effect("create, list and delete print JSON; deleting again reports the first time (D40, D43)", () =>
    Effect.gen(function* () {
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

      const deleted = yield* runJson("workspace", "delete", workspace_id)
      assert.deepStrictEqual(Object.keys(deleted), ["workspace_id", "deleted_at"])
      assert.strictEqual(deleted["workspace_id"], workspace_id)
      assert.match(textIn(deleted, "deleted_at"), iso)
      assert.deepStrictEqual(yield* runJson("workspace", "delete", workspace_id.toUpperCase()), deleted)
      assert.deepInclude(((yield* list)["workspaces"] as Array<object>)[1], deleted)
    })
  )

  it.effect("prints text for a person; a deleted default workspace stays the account's default (D40, D43)", () =>
    Effect.gen(function* () {
      const { run, runJson } = yield* CommandLine
      const account = yield* runJson("account", "create", "--name", "Acme")
      const [account_id, workspace_id] = [textIn(account, "account_id"), textIn(account, "workspace_id")]
      const deleted = yield* run("workspace", "delete", workspace_id)
      assert.match(deleted.stdout, new RegExp(`^workspace_id +${workspace_id}\ndeleted_at +\\S+Z\n$`))
      const created = yield* run("workspace", "create", "--account", account_id, "--name", "staging")
      assert.match(created.stdout, /^workspace_id +\S{36}\n$/)

      const { stdout } = yield* run("workspace", "list", "--account", account_id)
      const [first = "", second = "", ...others] = stdout.trimEnd().split("\n\n")
      assert.deepStrictEqual(others, [], "a block for each workspace")
      assert.match(first, new RegExp(`^workspace_id +${workspace_id}\nname +default\nis_default +true\n`))
      assert.match(first, /\ndeleted_at +\S+Z$/)
      assert.match(second, /\nname +staging\nis_default +false\ncreated_at +\S+Z\ndeleted_at +-$/)
    })
  )
})
