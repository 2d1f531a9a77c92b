import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { databaseContent, leakOf } from "../support/keys/leakSearch.ts"
import { crc32, faultOf, sha256, withoutPrefix } from "../support/keys/issuedKey.ts"

layerLive(CommandLine.layer)("byok account create", (it) => {
  it.effect("--json prints ids, management key and its hash; only the hash is stored (D24, D40, D41)", () =>
    Effect.gen(function* () {
      const { runJson, sql } = yield* CommandLine
      const made = yield* runJson("account", "create", "--name", "Søren & Søn 株")
      assert.sameMembers(Object.keys(made), ["account_id", "workspace_id", "management_key", "management_key_hash"])
      const key = textIn(made, "management_key")
      assert.isUndefined(faultOf(key, "mk"))
      assert.strictEqual(made["management_key_hash"], sha256(key))

      assert.deepStrictEqual(
        yield* sql`SELECT id, name FROM accounts`.pipe(Effect.map((rows) => rows.map((row) => ({ ...row })))),
        [{ id: made["account_id"], name: "Søren & Søn 株" }]
      )
      assert.deepStrictEqual(
        (yield* sql`SELECT account_id, id, is_default, deleted_at FROM workspaces`).map((row) => ({ ...row })),
        [{ account_id: made["account_id"], id: made["workspace_id"], is_default: true, deleted_at: null }]
      )
      assert.deepStrictEqual(
        (yield* sql`SELECT encode(hash, 'hex') AS hash, account_id, management, revoked_at FROM api_keys`).map(
          (row) => ({
            ...row
          })
        ),
        [{ hash: sha256(key), account_id: made["account_id"], management: true, revoked_at: null }]
      )
      const content = yield* databaseContent(sql)
      assert.include(content, sha256(key))
      assert.isUndefined(leakOf(content, [withoutPrefix(key)]))
    })
  )

  it.effect("without --json the same is printed for a person, one line each (D40)", () =>
    Effect.gen(function* () {
      const { run } = yield* CommandLine
      const { code, stderr, stdout } = yield* run("account", "create", "--name", "Acme")
      assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
      const pairs = stdout
        .trimEnd()
        .split("\n")
        .map((line) => line.split(/ {2,}/))
      assert.deepStrictEqual(
        pairs.map(([name]) => name),
        ["account_id", "workspace_id", "management_key", "management_key_hash"]
      )
      const [, , [, key = ""] = [], [, hash] = []] = pairs
      assert.isUndefined(faultOf(key, "mk"))
      assert.strictEqual(hash, sha256(key))
    })
  )
})

describe("the check of issued keys", () => {
  it("computes the published check value of CRC-32, and notices each kind of fault (D41, control)", () => {
    assert.strictEqual(crc32("123456789"), 0xcbf43926)
    const random = "0".repeat(43)
    assert.strictEqual(faultOf(`byok_mk_${random}000000`, "ak"), "prefix")
    assert.strictEqual(faultOf(`byok_mk_${random}00000`, "mk"), "length or digits")
    assert.strictEqual(faultOf(`byok_mk_${"z".repeat(43)}000000`, "mk"), "more than 32 bytes")
    assert.strictEqual(faultOf(`byok_mk_${random}000000`, "mk"), "CRC-32")
  })
})
