import { Effect, Layer } from "effect"
import { assert, layerLive } from "../support/it.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { databaseContent, leakOf } from "../support/keys/leakSearch.ts"
import { faultOf, sha256, withoutPrefix } from "../support/keys/issuedKey.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { startService } from "../support/process/ServiceProcess.ts"

layerLive(CommandLine.layer)("byok api-key", (it) => {
  it.effect("byok api-key issue prints a key that neither list nor the database shows again (D40, D41)", function* () {
    const { run, runJson, sql } = yield* CommandLine
    const account = yield* runJson("account", "create", "--name", "Acme")
    const account_id = textIn(account, "account_id")
    const issue = (...flags: ReadonlyArray<string>) =>
      runJson("api-key", "issue", "--account", account_id, "--name", "gateway", ...flags)

    const ordinary = yield* issue()
    const management = yield* issue("--management")
    assert.deepStrictEqual(Object.keys(ordinary), ["key", "hash", "role"])
    const keys = [textIn(ordinary, "key"), textIn(management, "key"), textIn(account, "management_key")]
    const [first = "", second = "", third = ""] = keys
    assert.isUndefined(faultOf(first, "ak"))
    assert.isUndefined(faultOf(second, "mk"))
    assert.deepStrictEqual(ordinary, { key: first, hash: sha256(first), role: "ordinary" })
    assert.deepStrictEqual(management, { key: second, hash: sha256(second), role: "management" })

    const viewer = yield* issue("--role", "viewer")
    assert.strictEqual(viewer["role"], "viewer")
    yield* run("api-key", "revoke", textIn(viewer, "hash"))
    const both = yield* run(
      "api-key",
      "issue",
      "--account",
      account_id,
      "--name",
      "n",
      "--management",
      "--role",
      "viewer"
    )
    assert.strictEqual(both.code, 1)
    assert.include(both.stderr, "--management contradicts --role viewer.")

    const listed = yield* runJson("api-key", "list", "--account", account_id)
    const { stdout: readable } = yield* run("api-key", "list", "--account", account_id)
    assert.deepStrictEqual(Object.keys(listed), ["api_keys"])
    const all = listed["api_keys"] as ReadonlyArray<Record<string, unknown>>
    const rows = all.filter((row) => row["role"] !== "viewer")
    assert.deepStrictEqual(
      rows.map(({ created_at: _, ...row }) => row),
      [
        { hash: sha256(third), name: "first management key", role: "management", revoked_at: null },
        { hash: sha256(first), name: "gateway", role: "ordinary", revoked_at: null },
        { hash: sha256(second), name: "gateway", role: "management", revoked_at: null }
      ]
    )
    assert.isTrue(rows.every(({ created_at }) => typeof created_at === "string"))
    assert.match(readable, new RegExp(`hash +${sha256(first)}\nname +gateway\nrole +ordinary\n`))
    const shown = JSON.stringify(listed) + readable + (yield* databaseContent(sql))
    assert.isUndefined(leakOf(shown, keys.map(withoutPrefix)))
  })

  it.effect("byok api-key revoke, run again, reports the time of the first revocation (D42)", function* () {
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
})

const id = "01935f6a-0000-7000-8000-000000000000"

layerLive(Layer.fresh(CommandLine.layer))("byok api-key import (D41)", (it) => {
  it.effect("byok api-key import accepts the hash of a key in any format; the key then authenticates", function* () {
    const { databaseUrl, run, runJson } = yield* CommandLine
    const account_id = textIn(yield* runJson("account", "create", "--name", "Acme"), "account_id")
    const keys = { management: "sk-of-another-form", ordinary: "sk-of-another-form-too" }
    const flags = (key: string) => [sha256(key), "--account", account_id, "--name", "imported"]
    const ordinary = yield* runJson("api-key", "import", ...flags(keys.ordinary))
    assert.deepStrictEqual(ordinary, { hash: sha256(keys.ordinary), role: "ordinary" })
    const { code, stderr, stdout } = yield* run("api-key", "import", ...flags(keys.management), "--management")
    assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
    assert.strictEqual(stdout, `hash  ${sha256(keys.management)}\nrole  management\n`)

    const { url } = yield* startService({ DATABASE_URL: databaseUrl, BYOK_KEYRING: ringOf("a") })
    const get = (key: string) =>
      Effect.promise(async () => {
        const { status } = await fetch(`${url}/api/v1/byok/${id}`, { headers: { authorization: `Bearer ${key}` } })
        return status
      })
    const statuses = yield* Effect.forEach([keys.management, keys.ordinary, "sk-never-imported"], get)
    assert.deepStrictEqual(statuses, [404, 403, 401])
  })

  it.effect("byok api-key import refuses an existing hash, revoked or not, and changes nothing", function* () {
    const { run, runJson } = yield* CommandLine
    const account = yield* runJson("account", "create", "--name", "Acme")
    const other = yield* runJson("account", "create", "--name", "Other")
    const hash = textIn(account, "management_key_hash")
    const list = runJson("api-key", "list", "--account", textIn(account, "account_id"))
    const refuse = Effect.gen(function* () {
      const before = yield* list
      for (const owner of [account, other]) {
        assert.deepStrictEqual(
          yield* run("api-key", "import", hash, "--account", textIn(owner, "account_id"), "--name", "n"),
          { code: 1, stdout: "", stderr: "There is an API key with this hash already.\n" }
        )
      }
      assert.deepStrictEqual(yield* list, before)
    })
    yield* refuse
    yield* run("api-key", "revoke", hash)
    yield* refuse
  })
})
