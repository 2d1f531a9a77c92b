import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { databaseContent, leakOf } from "../support/keys/leakSearch.ts"
import { faultOf, sha256, withoutPrefix } from "../support/keys/issuedKey.ts"

layerLive(CommandLine.layer)("byok api-key", (it) => {
  it.effect("issues keys of both kinds; neither a list nor a table shows one again (D40, D41)", () =>
    Effect.gen(function* () {
      const { run, runJson, sql } = yield* CommandLine
      const account = yield* runJson("account", "create", "--name", "Acme")
      const account_id = textIn(account, "account_id")
      const issue = (...flags: ReadonlyArray<string>) =>
        runJson("api-key", "issue", "--account", account_id, "--name", "gateway", ...flags)

      const ordinary = yield* issue()
      const management = yield* issue("--management")
      assert.deepStrictEqual(Object.keys(ordinary), ["key", "hash", "management"])
      const keys = [textIn(ordinary, "key"), textIn(management, "key"), textIn(account, "management_key")]
      const [first = "", second = "", third = ""] = keys
      assert.isUndefined(faultOf(first, "ak"))
      assert.isUndefined(faultOf(second, "mk"))
      assert.deepStrictEqual(ordinary, { key: first, hash: sha256(first), management: false })
      assert.deepStrictEqual(management, { key: second, hash: sha256(second), management: true })

      const listed = yield* runJson("api-key", "list", "--account", account_id)
      const { stdout: readable } = yield* run("api-key", "list", "--account", account_id)
      assert.deepStrictEqual(Object.keys(listed), ["api_keys"])
      const rows = listed["api_keys"] as ReadonlyArray<Record<string, unknown>>
      assert.deepStrictEqual(
        rows.map(({ created_at: _, ...row }) => row),
        [
          { hash: sha256(third), name: "first management key", management: true, revoked_at: null },
          { hash: sha256(first), name: "gateway", management: false, revoked_at: null },
          { hash: sha256(second), name: "gateway", management: true, revoked_at: null }
        ]
      )
      assert.isTrue(rows.every(({ created_at }) => typeof created_at === "string"))
      assert.match(readable, new RegExp(`hash +${sha256(first)}\nname +gateway\nmanagement +false\n`))
      const shown = JSON.stringify(listed) + readable + (yield* databaseContent(sql))
      assert.isUndefined(leakOf(shown, keys.map(withoutPrefix)))
    })
  )

  it.effect("revokes once: later calls report the time of the first (D42)", () =>
    Effect.gen(function* () {
      const { run, runJson, sql } = yield* CommandLine
      const account = yield* runJson("account", "create", "--name", "Acme")
      const hash = textIn(account, "management_key_hash")
      const revoked = yield* runJson("api-key", "revoke", hash)
      assert.deepStrictEqual(Object.keys(revoked), ["hash", "revoked_at"])
      assert.strictEqual(revoked["hash"], hash)
      assert.deepStrictEqual(yield* runJson("api-key", "revoke", hash), revoked)
      const { stdout } = yield* run("api-key", "revoke", hash)
      assert.match(stdout, new RegExp(`^hash +${hash}\nrevoked_at +${textIn(revoked, "revoked_at")}\n$`))
      const rows = yield* sql<{ at: Date }>`SELECT revoked_at AS at FROM api_keys WHERE hash = decode(${hash}, 'hex')`
      assert.strictEqual(rows[0]?.at.toISOString(), revoked["revoked_at"])
    })
  )
})
