import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"

const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

type Objects = ReadonlyArray<Record<string, unknown>>

layerLive(CommandLine.layer)("byok account list (F15)", (it) => {
  it.effect("prints id, name and time of creation of every account, for a person and as JSON; nothing if none", () =>
    Effect.gen(function* () {
      const { run, runJson } = yield* CommandLine
      assert.deepStrictEqual(yield* runJson("account", "list"), { accounts: [] })
      assert.deepStrictEqual(yield* run("account", "list"), { code: 0, stdout: "", stderr: "" })
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
  )

  it.effect("names of older rows cannot act on the terminal or forge a line", () =>
    Effect.gen(function* () {
      const { run, runJson, sql } = yield* CommandLine
      const account_id = textIn(yield* runJson("account", "create", "--name", "Acme"), "account_id")
      const name = "\u001b[2J\nmanagement  true\u009b\u007f"
      const shown = String.raw`\u001b[2J\u000amanagement  true\u009b\u007f`
      for (const table of ["accounts", "workspaces", "api_keys"]) {
        const column = table === "accounts" ? "id" : "account_id"
        yield* sql`UPDATE ${sql(table)} SET name = ${name} WHERE ${sql(column)} = ${account_id}`
      }
      for (const [args, list] of [
        [["account", "list"], "accounts"],
        [["workspace", "list", "--account", account_id], "workspaces"],
        [["api-key", "list", "--account", account_id], "api_keys"]
      ] as const) {
        const { stdout } = yield* run(...args)
        assert.include(stdout.split("\n"), `${"name".padEnd(/^(\w+ +)/.exec(stdout)?.[1]?.length ?? 0)}${shown}`)
        const json = yield* run(...args, "--json")
        assert.notMatch(stdout + json.stdout, /[^\P{Cc}\n]/u)
        const rows = (JSON.parse(json.stdout) as Record<string, Objects>)[list] ?? []
        assert.include(
          rows.map((row) => row["name"]),
          name
        )
      }
    })
  )

  it.effect("prints more accounts than it reads at a time", () =>
    Effect.gen(function* () {
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
  )
})
