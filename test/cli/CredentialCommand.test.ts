import { randomUUID } from "node:crypto"
import { chmodSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { eventsIn } from "../support/database/auditEntries.ts"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { leakOf } from "../support/keys/leakSearch.ts"
import { createAccount, onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

type Objects = ReadonlyArray<Record<string, unknown>>

const key = (number: number) => `sk-Qx7Lm2Rt9Wk4Zp8Vb3Nc6Hd1-${number}`

/** An account with three credentials of one provider and one of another. */
const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* migratedDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
  const made = yield* createAccount(settings)
  const account_id = textIn(made, "account_id")
  const file = join(yield* temporaryDirectory, "keys.jsonl")
  const bodies = ["groq", "groq", "groq", "openai"].map((provider, number) => ({ provider, key: key(number) }))
  writeFileSync(file, bodies.map((body) => JSON.stringify(body)).join("\n"))
  chmodSync(file, 0o600)
  const imported = yield* runCommand(["credential", "import", file, "--account", account_id], settings)
  assert.strictEqual(imported.code, 0, imported.stderr)
  const run = (...args: ReadonlyArray<string>) => runCommand(["credential", ...args, "--account", account_id], settings)
  return {
    settings,
    account_id,
    workspace_id: textIn(made, "workspace_id"),
    ids: imported.stdout
      .trimEnd()
      .split("\n")
      .map((line) => textIn(JSON.parse(line) as Record<string, unknown>, "id")),
    sql: yield* adminClient(DATABASE_URL),
    run,
    runJson: (...args: ReadonlyArray<string>) => Effect.map(run(...args, "--json"), onlyObject)
  }
})

describe("byok credential", () => {
  it.live(
    "list, show, disable, enable and delete stay in one account, audit changes and show no key (T4, T6)",
    function* () {
      const { account_id, ids, run, runJson, settings, sql, workspace_id } = yield* begin
      const listed = (yield* runJson("list"))["credentials"] as Objects
      assert.sameMembers(
        listed.map(({ id }) => id),
        ids
      )
      assert.lengthOf(Object.keys(listed[0] ?? {}), 17)
      const groq = (yield* runJson("list", "--provider", "groq", "--workspace", workspace_id))["credentials"]
      assert.lengthOf(groq as Objects, 3)
      const blocks = (yield* run("list", "--long")).stdout
      assert.lengthOf(blocks.trimEnd().split("\n\n"), 4)

      const [id = ""] = ids
      const shown = yield* runJson("show", id)
      const credential = listed.find((one) => one["id"] === id)
      const more = { revision: 1, key_version: 1, kek_id: "kek", workspace_deleted: false, parked: [] }
      const unrefused = { last_refused_at: null, last_refused_status: null, last_refused_code: null }
      const unused = { last_leased_at: null, last_succeeded_at: null, last_failed_at: null, last_failure: null }
      assert.deepStrictEqual(shown, { ...credential, ...more, ...unused, ...unrefused })
      yield* sql`
          INSERT INTO credential_use (account_id, credential_id, last_leased_at, last_failed_at, last_failure, last_failed_version)
          VALUES (${account_id}, ${id}, '2026-11-20T10:00:00Z', '2026-11-20T10:00:01Z', 'rejected', 1)`
      const used = {
        state: "failing",
        ...{ last_leased_at: "2026-11-20T10:00:00.000Z", last_succeeded_at: null },
        ...{ last_failed_at: "2026-11-20T10:00:01.000Z", last_failure: "rejected" }
      }
      assert.deepStrictEqual(yield* runJson("show", id), { ...credential, ...more, ...used, ...unrefused })
      assert.match(
        (yield* run("show", id)).stdout,
        /^last_failed_at +2026-11-20T10:00:01\.000Z\nlast_failure +rejected$/m
      )
      const text = (yield* run("show", id)).stdout
      assert.isUndefined(leakOf(blocks + text + JSON.stringify(listed), [key(0).slice(0, -5)]))

      const withoutKeyring = { DATABASE_URL: settings.DATABASE_URL }
      const refused = yield* runCommand(["credential", "disable", id, "--account", account_id], withoutKeyring)
      assert.match(refused.stderr, /^BYOK_KEYRING_FILE, BYOK_KEYRING_COMMAND or BYOK_KEYRING must be set /)
      assert.deepStrictEqual(yield* runJson("disable", id), { id, disabled: true })
      assert.deepStrictEqual(yield* runJson("disable", id), { id, disabled: true })
      assert.strictEqual((yield* runJson("show", id))["revision"], 2)
      assert.deepStrictEqual(yield* runJson("enable", id), { id, disabled: false })

      const deleted = yield* runCommand(["credential", "delete", id, "--account", account_id, "--json"], withoutKeyring)
      assert.strictEqual(onlyObject(deleted)["id"], id)
      for (const command of ["show", "delete", "disable", "enable"]) {
        const again = yield* run(command, id)
        assert.deepStrictEqual([again.code, again.stderr], [1, "There is no such credential.\n"], command)
      }
      const actions = (yield* eventsIn(sql))
        .filter((event) => "credential_id" in event && event.credential_id === id)
        .map(({ action, actor }) => [action, actor.kind])
      assert.deepStrictEqual(actions, [
        ["credential.create", "cli"],
        ["credential.update", "cli"],
        ["credential.update", "cli"],
        ["credential.delete", "cli"]
      ])

      const stranger = textIn(yield* createAccount(settings), "account_id")
      for (const command of ["show", "delete", "disable"]) {
        const foreign = yield* runCommand(["credential", command, ids[1] ?? "", "--account", stranger], settings)
        assert.deepStrictEqual([foreign.code, foreign.stderr], [1, "There is no such credential.\n"], command)
      }
    },
    180_000
  )

  it.live("list prints a row with the state of each credential; show adds when it was parked (C7, C8)", function* () {
    const { account_id, ids, run, runJson, settings, sql } = yield* begin
    const [one = "", two = "", three = "", four = ""] = ids
    const found = yield* runCommand(["leak", "find", "--park"], settings, key(0))
    assert.strictEqual(found.code, 0, found.stderr)
    assert.strictEqual((yield* run("disable", two)).code, 0)
    yield* sql`
        INSERT INTO credential_parkings (account_id, credential_id, model, key_version, cause, strikes, until, parked_at)
        VALUES (${account_id}, ${three}, 'a/b', 1, 'rejected', 1, now() + interval '1 hour', now())`
    const states = { [one]: "leaked", [two]: "disabled", [three]: "parked", [four]: "active" }
    const rows = (yield* run("list")).stdout.trimEnd().split("\n")
    assert.deepStrictEqual(Object.fromEntries(rows.map((row) => [row.split(/ +/)[0], row.split(/ +/).at(-1)])), states)
    for (const row of rows) assert.match(row, /^[0-9a-f-]{36} {2}(groq|openai) +- {2}sk-\.\.\.\S{4} {2}[a-z]+$/)
    for (const [id, state] of Object.entries(states)) {
      assert.strictEqual((yield* run("list", "--state", state)).stdout.split("  ")[0], id)
      const shown = yield* runJson("show", id)
      const parked = shown["parked"] as Objects
      assert.strictEqual(shown["state"], state)
      assert.lengthOf(parked, state === "leaked" || state === "parked" ? 1 : 0)
      for (const { since, until } of parked) {
        assert.isBelow(Math.abs(Date.parse(String(since)) - Date.now()), 60_000)
        assert.strictEqual(until === null, state === "leaked")
      }
    }
    const none = yield* run(
      "list",
      "--workspace",
      textIn(yield* runJson("show", one), "workspace_id"),
      "--provider",
      "xai"
    )
    assert.deepStrictEqual(none, { code: 0, stdout: "There is no such credential.\n", stderr: "" })
    const other = { ...settings, BYOK_KEYRING: ringOf("other") }
    const show = yield* runCommand(["credential", "show", four, "--account", account_id], other)
    assert.match(show.stdout, /^state +unreadable$/m)
    const unverified = { DATABASE_URL: settings.DATABASE_URL }
    const blind = yield* runCommand(["credential", "show", four, "--account", account_id], unverified)
    assert.match(blind.stdout, /^state +active$/m)
  })

  it.live("create reads the key from standard input; a refusal gives the reason but not the key (C7)", function* () {
    const { account_id, runJson, settings, workspace_id } = yield* begin
    const create = (given: string, ...args: ReadonlyArray<string>) =>
      runCommand(["credential", "create", "--account", account_id, "--provider", "xai", ...args], settings, given)
    const created = onlyObject(yield* create(`${key(9)}\n`, "--name", "n", "--workspace", workspace_id, "--json"))
    assert.deepInclude(created, { provider: "xai", name: "n", workspace_id, label: "sk-...d1-9" })
    const { id = "" } = created as { readonly id?: string }
    assert.deepInclude(yield* runJson("show", id), created)
    const refused = yield* create(` ${key(9)}`)
    const sentence =
      "Nothing was created: key must not have white space, a control character or a format character at either end.\n"
    assert.deepStrictEqual(refused, { code: 1, stdout: "", stderr: sentence })
    assert.strictEqual((yield* create("\n")).stderr, "The key must not be empty.\n")
    const nobody = ["credential", "create", "--account", randomUUID(), "--provider", "xai"]
    assert.strictEqual((yield* runCommand(nobody, settings, key(9))).stderr, "There is no such account.\n")
  })

  it.live(
    "reorder refuses ids that are not exactly those of the pool, naming missing and foreign ones (L14)",
    function* () {
      const { ids, run, runJson, sql, workspace_id } = yield* begin
      // The import creates several at a time.
      const before = yield* sql<{
        id: string
      }>`SELECT id FROM credentials WHERE provider = 'groq' ORDER BY sort_order`
      const [one = "", two = "", three = ""] = before.map(({ id }) => id)
      const other = ids[3] ?? ""
      const group = ["--workspace", workspace_id, "--provider", "groq"]
      const refused = yield* run("reorder", three, other, one, ...group)
      assert.deepStrictEqual(
        [refused.code, refused.stdout, refused.stderr],
        [1, "", `The order was not changed. Missing: ${two}. Not of this workspace and provider: ${other}.\n`]
      )
      assert.deepStrictEqual(yield* runJson("reorder", three, one, two, ...group), {
        workspace_id,
        provider: "groq",
        ids: [three, one, two]
      })
      const unknown = yield* run("list", "--workspace", randomUUID())
      assert.deepStrictEqual([unknown.code, unknown.stderr], [1, "There is no such workspace.\n"])
    },
    180_000
  )
})
