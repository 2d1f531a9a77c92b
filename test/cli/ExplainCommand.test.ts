import { randomUUID } from "node:crypto"
import { Effect, Option, Redacted } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { createdId } from "../support/http/Bodies.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"
import { onlyObject } from "../support/process/CommandLine.ts"
import { assert, layerLive } from "../support/it.ts"
import { runCommand } from "../support/process/runCommand.ts"

const keyring = generateKeyring(new Date())
const service = TestService.layerWith({
  settings: (settings) => ({ ...settings, keyring: Option.some(Redacted.make(keyring)) })
})
const key = "sk-0123456789-0123456789-AbCd"

/** Runs `byok explain` on the service's database, with or without its keyring. */
const explain = Effect.fnUntraced(function* (
  { account_id }: Pick<Tenant, "account_id">,
  args: ReadonlyArray<string>,
  settings: Record<string, string> = { BYOK_KEYRING: keyring }
) {
  const { databaseUrl } = yield* TestService
  const given = args.some((arg) => arg === "--provider") ? [] : ["--provider", "openai", "--model", "openai/gpt-4o"]
  return yield* runCommand(["explain", "--account", account_id, ...given, ...args], {
    DATABASE_URL: databaseUrl,
    ...settings
  })
})

/** A tenant with a key that is used, one that is a fallback, and one that is not used. */
const withKeys = Effect.gen(function* () {
  const tenant = yield* TestService.newTenant
  const { create } = tenant
  const body = { provider: "openai", key }
  return {
    ...tenant,
    first: createdId(yield* create({ ...body, name: "Production", is_required: true })),
    unused: createdId(yield* create({ ...body, name: "Team\u001b[2J A", allowed_models: ["gpt-4o", "x"] })),
    fallback: createdId(yield* create({ ...body, is_fallback: true }))
  }
})

layerLive(service)("byok explain", (it) => {
  it.effect("byok explain prints attempts in order, and why credentials are not used (Q8, Q9, E18)", function* () {
    const { sql } = yield* TestService
    const tenant = yield* withKeys
    const { account_id, fallback, first, unused } = tenant
    yield* sql`
        INSERT INTO credential_parkings
        VALUES (${account_id}, ${unused}, '', 1, 'rejected', 1, now() + interval '30 minutes', now())`
    const { code, stderr, stdout } = yield* explain(tenant, [])
    assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
    const pad = "".padEnd(36 - "Production".length)
    assert.deepStrictEqual(stdout.replace(/at [\d-]{10}T[\d:]{8}Z/, "at TIME").split("\n"), [
      "openai/gpt-4o",
      `  1  openai  Production${pad}  sk-...AbCd  own key`,
      `  -  openai  shared${"".padEnd(30)}              removed: ${first} (Production) forbids it for every model`,
      `  2  openai  ${fallback}  sk-...AbCd  own key, fallback`,
      "not used",
      "  openai  Team\\u001b[2J A  sk-...AbCd  allowed_models has 2 models, not this one (it has gpt-4o: a slug needs its vendor)",
      `${"".padEnd(39)}the upstream rejected the key; it is tried again at TIME`,
      ""
    ])
  })

  it.effect("byok explain --json prints the same plan as the API, and seals_verified: true (Q8)", function* () {
    const tenant = yield* withKeys
    const printed = onlyObject(yield* explain(tenant, ["--json"]))
    const answer = yield* tenant.plan({ model: "openai/gpt-4o", targets: [{ provider: "openai" }] })
    const { data } = JSON.parse(answer.body) as { readonly data: object }
    assert.deepStrictEqual(printed, { ...data, seals_verified: true })
    assert.notInclude(JSON.stringify(printed), key.slice(5, 20))
  })

  it.effect("byok explain accepts an option for every property of a request", function* () {
    const tenant = yield* TestService.newTenant
    const { createWorkspace, issueApiKey } = yield* Accounts
    const made = yield* createWorkspace(tenant.account_id, "another")
    const { hash } = yield* issueApiKey(tenant.account_id, { name: "caller", role: "ordinary" })
    const { code, stdout } = yield* explain(tenant, [
      ...["--provider", "azure,openai", "--model", "m", "--workspace", made.workspace_id, "--api-key-hash", hash],
      ...["--user", "ann", "--host", "europe", "--zdr", "--kind", "pinned", "--endpoint-region", "europe"],
      ...["--endpoint-zdr", "--provider-first", "--json"]
    ])
    assert.strictEqual(code, 0)
    const printed = JSON.parse(stdout) as Record<string, unknown>
    assert.deepInclude(printed, {
      workspace_id: made.workspace_id,
      host: "europe",
      requires_zdr: true,
      strategy: "provider_first",
      steps: [
        { kind: "shared", provider: "azure" },
        { kind: "shared", provider: "openai" }
      ]
    })
    const unknown = yield* explain(tenant, ["--api-key-hash", "a".repeat(64)])
    assert.strictEqual(unknown.code, 1)
    assert.include(unknown.stderr, "api_key_hash is not an API key of this account")
    const unshared = yield* explain(tenant, ["--no-shared"])
    assert.include(
      unshared.stdout,
      "removed: the gateway has no capacity of its own there\nNothing serves this request.\n"
    )
  })

  it.effect("byok explain without a keyring trusts stored rows, and says it verified no seals (E16)", function* () {
    const { sql } = yield* TestService
    const tenant = yield* withKeys
    yield* sql`UPDATE credentials SET is_required = false WHERE id = ${tenant.first}`
    const { stdout } = yield* explain(tenant, [], {})
    assert.include(stdout, "  2  openai  shared")
    assert.include(stdout, "Seals not verified")
    assert.isFalse(onlyObject(yield* explain(tenant, ["--json"], {}))["seals_verified"])
    const verified = yield* explain(tenant, [])
    assert.include(verified.stdout, "its row was altered after it was sealed", "control")
    assert.notInclude(verified.stdout, "Seals not verified")
  })

  it.effect("byok explain refuses an unknown workspace or account (E19)", function* () {
    const tenant = yield* TestService.newTenant
    const stranger = yield* TestService.newTenant
    const foreign = yield* explain(tenant, ["--workspace", stranger.workspace_id])
    assert.deepStrictEqual([foreign.code, foreign.stderr], [1, "There is no such workspace.\n"])
    const unknown = yield* explain({ account_id: randomUUID() as never }, [])
    assert.deepStrictEqual([unknown.code, unknown.stderr], [1, "There is no such workspace.\n"])
  })
})
