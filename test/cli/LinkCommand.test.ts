import { Effect } from "effect"
import { unknownId } from "../support/http/Bodies.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { assert, layerLive } from "../support/it.ts"
import { runCommand } from "../support/process/runCommand.ts"

layerLive(CommandLine.layer)("byok link", (it) => {
  it.effect("byok link create prints a secret URL that list does not show; revoke removes the link", function* () {
    const { databaseUrl: DATABASE_URL } = yield* CommandLine
    const run = (...args: ReadonlyArray<string>) =>
      runCommand(args, { DATABASE_URL, BYOK_KEYRING: ringOf("kek"), PUBLIC_URL: "https://keys.example/byok/" })
    const json = (...args: ReadonlyArray<string>) =>
      Effect.map(run(...args, "--json"), ({ stdout }) => JSON.parse(stdout) as Record<string, unknown>)
    const account_id = textIn(yield* json("account", "create", "--name", "Acme"), "account_id")
    const made = yield* json(
      ...["link", "create", "--account", account_id, "--purpose", "connect", "--provider", "openai"],
      ...["--return-url", "https://gateway.example/", "--expires-in", "600"]
    )
    assert.deepStrictEqual(Object.keys(made), ["link_id", "url", "expires_at"])
    assert.match(textIn(made, "url"), /^https:\/\/keys\.example\/byok\/keys#byok_ln_\w{49}$/)
    const link_id = textIn(made, "link_id")
    const { stdout } = yield* run("link", "list", "--account", account_id)
    assert.match(stdout, new RegExp(`^link_id +${link_id}\npurpose +connect\n`))
    assert.notInclude(stdout, "byok_ln_")
    assert.strictEqual((yield* run("link", "revoke", link_id, "--account", account_id)).code, 0)
    assert.deepStrictEqual(yield* json("link", "list", "--account", account_id), { links: [] })
  })

  it.effect("byok link refuses an unknown account, a missing credential and an unknown link", function* () {
    const { databaseUrl: DATABASE_URL } = yield* CommandLine
    const run = (...args: ReadonlyArray<string>) => runCommand(args, { DATABASE_URL, BYOK_KEYRING: ringOf("kek") })
    const create = (...args: ReadonlyArray<string>) => run("link", "create", "--account", unknownId, ...args)
    const lines = [
      yield* create("--purpose", "view"),
      yield* create("--purpose", "replace"),
      yield* run("link", "revoke", unknownId, "--account", unknownId)
    ].map(({ code, stderr }) => [code, stderr.trim().split("\n").at(-1)?.trim().slice(0, 45)])
    assert.deepStrictEqual(lines, [
      [1, "There is no such account."],
      [1, "No link was made: credential_id is required t"],
      [1, "There is no such link."]
    ])
  })
})
