import { userInfo } from "node:os"
import { Effect, Redacted } from "effect"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { migrate } from "../support/database/migrate.ts"
import { assert, layerLive } from "../support/it.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { databaseSettings } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { runShell } from "../support/process/runByok.ts"
import { runCommand } from "../support/process/runCommand.ts"

const objects = (stdout: string) => {
  assert.match(stdout, /^(.*\n)*$/)
  return stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

/** The database's client, once the tables are there. */
const migrated = Effect.gen(function* () {
  const { databaseUrl, sql } = yield* CommandLine
  yield* migrate(parseDatabaseUrl(Redacted.make(databaseUrl)), databaseSettings)
  return sql
})

layerLive(CommandLine.layer)("byok audit (SECURITY.md, Audit)", (it) => {
  it.effect("byok audit export prints one event a line, in order; verify prints their count and hash", function* () {
    const { run, runJson, sql } = yield* CommandLine
    const account = yield* runJson("account", "create", "--name", "Acme")
    const [account_id, api_key_hash] = [textIn(account, "account_id"), textIn(account, "management_key_hash")]
    yield* run("api-key", "revoke", api_key_hash)

    const { code, stderr, stdout } = yield* run("audit", "verify")
    assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
    const [newest] = yield* sql<{ hash: string; at: string }>`
        SELECT encode(hash, 'hex') AS hash, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at
        FROM audit_checkpoints JOIN audit_entries ON seq = last_seq ORDER BY number DESC LIMIT 1`
    const { at = "", hash = "" } = newest ?? {}
    assert.strictEqual(stdout, `entries   2\nevents    4\nlast      2, ${at}\nunsealed  0\nhead      ${hash}\n`)

    const exported = yield* run("audit", "export")
    assert.deepStrictEqual([exported.code, exported.stderr], [0, `Sealed up to 2, with hash ${hash}\n`])
    const events = objects(exported.stdout)
    assert.deepStrictEqual(
      events.map(({ action, seq }) => [seq, action]),
      [
        [1, "account.create"],
        [1, "workspace.create"],
        [1, "api_key.issue"],
        [2, "api_key.revoke"]
      ]
    )
    assert.deepStrictEqual(events[3], {
      seq: 2,
      at,
      action: "api_key.revoke",
      account_id,
      api_key_hash,
      actor: { kind: "cli", user: userInfo().username }
    })
    assert.deepStrictEqual(objects((yield* run("audit", "export", "--after", "1")).stdout), events.slice(3))
  })

  it.effect("the audit log records each key of a newly seen keyring, with the actor", function* () {
    const { databaseUrl, run } = yield* CommandLine
    const variables = { DATABASE_URL: databaseUrl, BYOK_KEYRING: ringOf("first", "second") }
    assert.strictEqual((yield* runCommand(["keyring", "status"], variables)).code, 0)
    const events = objects((yield* run("audit", "export")).stdout)
    assert.deepStrictEqual(
      events.filter(({ action }) => action === "keyring.register").map(({ actor, kek_id }) => ({ actor, kek_id })),
      ["first", "second"].map((kek_id) => ({ actor: { kind: "cli", user: userInfo().username }, kek_id }))
    )
  })

  it.effect("byok audit verify exits with 1 and names an edited entry", function* () {
    const { run, runJson } = yield* CommandLine
    const sql = yield* migrated
    const made = yield* sql<{
      seq: number
    }>`INSERT INTO audit_entries (events) VALUES ('[1]') RETURNING seq::int AS seq`
    const seq = made[0]?.seq ?? 0
    const before = yield* runJson("audit", "verify")
    assert.deepInclude(yield* runJson("audit", "verify", "--from", textIn(before, "head")), { entries: 0, events: 0 })
    yield* sql`UPDATE audit_entries SET events = '[]' WHERE seq = ${seq}`
    const { code, stderr, stdout } = yield* run("audit", "verify", "--json")
    assert.deepStrictEqual({ code, stderr }, { code: 1, stderr: `Audit entry ${seq} was edited.\n` })
    assert.deepInclude(objects(stdout)[0], { fault: { kind: "edited", seq } })

    yield* sql`DELETE FROM audit_checkpoints`
    const expected = yield* run("audit", "verify", "--expect", textIn(before, "head"))
    assert.strictEqual(expected.code, 1)
    assert.match(expected.stderr, /^No checkpoint up to audit entry \d+ has the expected hash: .*\.\n$/)
  })

  it.effect("byok audit export streams logs larger than its heap, exits with 0 if its reader leaves", function* () {
    const { databaseUrl } = yield* CommandLine
    const sql = yield* migrated
    yield* sql`DELETE FROM audit_checkpoints`
    yield* sql`DELETE FROM audit_entries`
    yield* sql`
        INSERT INTO audit_entries (events) SELECT json_build_array(json_build_object('long', repeat('x', 250000)))
        FROM generate_series(1, 300)`
    const variables = { DATABASE_URL: databaseUrl, NODE_OPTIONS: "--max-old-space-size=110" }
    const whole = yield* runShell("byok audit export | wc -lc", { variables })
    const [lines, characters] = whole.stdout.trim().split(/\s+/).map(Number)
    assert.strictEqual(lines, 300, whole.stderr)
    assert.isAbove(characters ?? 0, 75_000_000)
    const onePage = '{ byok audit export; echo "exit $?" >&2; } | head -c 1000 | wc -c'
    const first = yield* runShell(onePage, { variables })
    assert.strictEqual(first.stdout.trim(), "1000")
    assert.match(first.stderr, /^Sealed up to \d+, with hash [0-9a-f]{64}\nexit 0\n$/)
  })
})
