import { Effect } from "effect"
import { assert, describe, it, layerLive } from "../support/it.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { databaseContent, leakOf } from "../support/keys/leakSearch.ts"
import { crc32, faultOf, sha256, withoutPrefix } from "../support/keys/issuedKey.ts"

layerLive(CommandLine.layer)("byok account create", (it) => {
  it.effect(
    "byok account create --json prints ids, key and hash, but stores only the hash (D24, D40, D41)",
    function* () {
      const { runJson, sql } = yield* CommandLine
      const made = yield* runJson("account", "create", "--name", "Søren & Søn 株")
      assert.sameMembers(Object.keys(made), ["account_id", "workspace_id", "management_key", "management_key_hash"])
      const key = textIn(made, "management_key")
      assert.isUndefined(faultOf(key, "mk"))
      assert.strictEqual(made["management_key_hash"], sha256(key))

      const rows = yield* sql`
        SELECT accounts.id AS account_id, accounts.name, workspaces.id AS workspace_id, is_default, deleted_at,
          encode(hash, 'hex') AS management_key_hash, role, revoked_at
        FROM accounts FULL JOIN workspaces ON workspaces.account_id = accounts.id
          FULL JOIN api_keys ON api_keys.account_id = accounts.id`
      const { management_key: _, ...shown } = made
      const fresh = { is_default: true, deleted_at: null, role: "management", revoked_at: null }
      assert.deepEqual(
        rows.map((row) => ({ ...row })),
        [{ ...shown, ...fresh, name: "Søren & Søn 株" }]
      )
      const content = yield* databaseContent(sql)
      assert.include(content, sha256(key))
      assert.isUndefined(leakOf(content, [withoutPrefix(key)]))
    }
  )
})

describe("the test helper that checks issued API keys", () => {
  it("computes CRC-32 correctly, and reports each kind of malformed key (D41, control)", () => {
    assert.strictEqual(crc32("123456789"), 0xcbf43926)
    const random = "0".repeat(43)
    assert.strictEqual(faultOf(`byok_mk_${random}000000`, "ak"), "prefix")
    assert.strictEqual(faultOf(`byok_mk_${random}00000`, "mk"), "length or digits")
    assert.strictEqual(faultOf(`byok_mk_${"z".repeat(43)}000000`, "mk"), "more than 32 bytes")
    assert.strictEqual(faultOf(`byok_mk_${random}000000`, "mk"), "CRC-32")
  })
})

const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

type Objects = ReadonlyArray<Record<string, unknown>>

layerLive(CommandLine.layer)("byok account list (F15)", (it) => {
  it.effect("byok account list prints all accounts as text or JSON, or says there is none (C7)", function* () {
    const { run, runJson } = yield* CommandLine
    assert.deepStrictEqual(yield* runJson("account", "list"), { accounts: [] })
    const none = "There is no account: `byok account create --name N` creates one.\n"
    assert.deepStrictEqual(yield* run("account", "list"), { code: 0, stdout: none, stderr: "" })
    const names = ["Acme", "Søren & Søn 株"]
    const ids = yield* Effect.forEach(names, (name) =>
      Effect.map(runJson("account", "create", "--name", name), (made) => textIn(made, "account_id"))
    )
    const accounts = (yield* runJson("account", "list"))["accounts"] as Objects
    assert.deepStrictEqual(
      accounts.map(({ account_id, name }) => [account_id, name]),
      ids.map((id, index) => [id, names[index]])
    )
    for (const account of accounts) {
      assert.deepStrictEqual(Object.keys(account), ["account_id", "name", "created_at"])
      assert.match(textIn(account, "created_at"), iso)
    }
    const { stdout } = yield* run("account", "list")
    const times = accounts.map((account) => textIn(account, "created_at"))
    const blocks = ids.map((id, at) => `account_id  ${id}\nname        ${names[at]}\ncreated_at  ${times[at]}\n`)
    assert.strictEqual(stdout, blocks.join("\n"))
  })

  it.effect("byok account list prints all accounts when they fill several pages", function* () {
    const { run, runJson, sql } = yield* CommandLine
    yield* sql`
        INSERT INTO accounts (id, name, created_at)
        SELECT gen_random_uuid(), 'account ' || number, now() FROM generate_series(1, 2500) AS number`
    const accounts = (yield* runJson("account", "list"))["accounts"] as Objects
    const rows = yield* sql`SELECT id FROM accounts ORDER BY id`
    assert.deepStrictEqual(
      accounts.map(({ account_id }) => account_id),
      rows.map(({ id }) => id)
    )
    const { stdout } = yield* run("account", "list")
    assert.lengthOf(stdout.trimEnd().split("\n\n"), rows.length)
  })
})
