import { assert } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { Accounts } from "../../src/service/Accounts.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import slugs from "./providers.json" with { type: "json" }
import { layerLive } from "../support/process/layerLive.ts"
import { acceptedBody, text } from "../support/memory/arbitraries.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { create, get } from "../support/http/HttpProbe.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"

/** What a router would get to call upstream with. */
const openedKey = Effect.fnUntraced(function* ({ account_id }: Tenant, id: unknown) {
  const repository = yield* CredentialRepository
  const found = yield* repository.findSealed(account_id, CredentialId.make(String(id)))
  const { credential, sealed } = Option.getOrThrow(found)
  return Redacted.value(yield* (yield* Cipher).open(sealed, { ...credential, account_id }))
})

const hundred = Array.from({ length: 100 }, (_, index) => `item-${index}`)
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

const shownAsGiven = (rule: string, given: object) => ({ rule, given, shown: given })

const accepted: ReadonlyArray<{ readonly rule: string; readonly given: object; readonly shown: object }> = [
  shownAsGiven("name: null (D21)", { name: null }),
  shownAsGiven('name: "" is a name (D20)', { name: "" }),
  shownAsGiven("name: blanks are kept (D23)", { name: "  two  " }),
  shownAsGiven("name: 255 characters (section 8)", { name: "a".repeat(255) }),
  shownAsGiven("name: 255 code points outside the BMP (D20)", { name: "𝒦".repeat(255) }),
  shownAsGiven("allowed_api_key_hashes: null (D21)", { allowed_api_key_hashes: null }),
  shownAsGiven("allowed_models: null (D21)", { allowed_models: null }),
  shownAsGiven("allowed_models: [] (D22)", { allowed_models: [] }),
  shownAsGiven("allowed_models: 100 (section 8)", { allowed_models: hundred }),
  shownAsGiven("allowed_models: order, duplicates, case, blanks and marks (D23)", {
    allowed_models: ["b", "a", "b", "A", " a ", "", "é", "e\u0301", '"', "{}", ",", "NULL", "\\"]
  }),
  shownAsGiven("allowed_user_ids: null (D21)", { allowed_user_ids: null }),
  shownAsGiven("allowed_user_ids: [] (D22)", { allowed_user_ids: [] }),
  shownAsGiven("allowed_user_ids: 100 (section 8)", { allowed_user_ids: hundred }),
  shownAsGiven("allowed_user_ids: order, duplicates, case and blanks (D23)", {
    allowed_user_ids: ["2", "1", "2", "U", "u", " u"]
  }),
  shownAsGiven("declared_region: null (D21)", { declared_region: null }),
  shownAsGiven("declared_zdr: null (D21)", { declared_zdr: null }),
  shownAsGiven("declared_zdr: true (section 4.1)", { declared_zdr: true }),
  shownAsGiven("declared_zdr: false (section 4.1)", { declared_zdr: false }),
  shownAsGiven("disabled: true (section 3)", { disabled: true }),
  {
    rule: "is_required: true (section 4.1)",
    given: { is_required: true },
    shown: { is_required: true, is_fallback: false }
  },
  shownAsGiven("is_fallback: true (section 4.1)", { is_fallback: true }),
  shownAsGiven("is_byok_only: true (section 4.1)", { is_byok_only: true }),
  shownAsGiven("is_required with is_byok_only (section 4.1)", { is_required: true, is_byok_only: true }),
  {
    rule: "unknown members are ignored (D13)",
    given: {
      added_later: { key: "x" },
      id: "x",
      label: "x",
      sort_order: 7,
      created_at: 0,
      constructor: 1,
      toString: null
    },
    shown: { name: null, label: "sk-...AbCd" }
  }
]

layerLive(TestService.layer)("fields (section 4.1)", (it) => {
  it.effect.each(accepted)("$rule", ({ given, shown }) =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const made = created(yield* create({ ...minimal, ...given }))
      for (const [name, value] of Object.entries(shown)) assert.deepStrictEqual(made[name], value)
    })
  )

  it.effect(
    "allowed_api_key_hashes: 1 to 100 live keys of the account, in any order and repeated (section 4.1, D23, D24)",
    () =>
      Effect.gen(function* () {
        const { account_id, create, management_key_hash: first } = yield* TestService.tenant
        const accounts = yield* Accounts
        const { hash: second } = yield* accounts.issueApiKey(account_id, { name: "ordinary", management: false })
        const lists = [[first], [second, first], [first, second, first], Array.from({ length: 100 }, () => second)]
        for (const allowed_api_key_hashes of lists) {
          const made = created(yield* create({ ...minimal, allowed_api_key_hashes }))
          assert.deepStrictEqual(made["allowed_api_key_hashes"], allowed_api_key_hashes)
        }
      })
  )

  it.effect("provider: each of the 115 slugs (section 2.2, D27)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      assert.strictEqual(new Set(slugs).size, 115)
      const made = yield* Effect.forEach(slugs, (provider) => create({ provider, key: "k" }), {
        concurrency: 8
      })
      assert.deepStrictEqual(
        made.map((answer) => created(answer)["provider"]),
        slugs
      )
    })
  )

  it.effect.each([
    ["first the accepted value", '{"key":"first","key":"second","provider":"xai","provider":"azure"}'],
    ["first a refused value", '{"key":5,"provider":"nobody","key":"second","provider":"azure"}']
  ])("a repeated member: the last one counts, %s (D13)", ([, body]) =>
    Effect.gen(function* () {
      const { tenant: shared, url } = yield* TestService
      const tenant = yield* shared
      const made = created(yield* create(url, tenant.management_key, body))
      assert.strictEqual(made["provider"], "azure")
      assert.strictEqual(yield* openedKey(tenant, made["id"]), "second")
    })
  )

  it.effect("a member named __proto__ is an unknown member like any other (D13)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const body = '{"__proto__":{"is_fallback":true,"name":"x"},"provider":"xai","key":"k"}'
      const made = created(yield* create(body))
      assert.strictEqual(made["is_fallback"], false)
      assert.strictEqual(made["name"], null)
    })
  )

  it.effect.each([
    ["one character", "xai", "k"],
    ["blanks around it", "xai", "  sk-padded \t\n"],
    ["blanks only", "xai", " \n "],
    ["a byte order mark in front", "xai", "\ufeffsk-0123456789"],
    ["letters that other forms of Unicode write otherwise", "xai", "e\u0301\u00e9\ufb01\u212b"],
    ["control characters and line separators", "xai", "\u0001\u001f\u007f\u0085\u2028\u2029"],
    ["characters outside the BMP and noncharacters", "xai", "\u{1f600}\u{10ffff}\uffff\ufffd"],
    ["quotes and backslashes", "xai", `'"\\"\\u0041'`],
    ["JSON of a provider whose keys are plain", "anthropic", '{ "api_key" : "" , "region":"mars" }'],
    [
      "a private key of many lines",
      "google-vertex",
      `{\n  "type": "x",\n  "private_key": "-----BEGIN\\n${"A".repeat(1700)}"\n}\n`
    ],
    [
      "key material, blanks, order and unknown members and all",
      "openai",
      ' {\n"region" : "us",\t"api_key":"sk-\\u0041", "api_key":"sk-2", "n": 1.0 } '
    ],
    ["plain text of a provider with key material", "fireworks", " fw-{not json}"],
    ["200,000 characters", "xai", "0123456789".repeat(20_000)]
  ])("key: opens byte for byte as given: %s (D26)", ([, provider, key]) =>
    Effect.gen(function* () {
      const { tenant: shared, url } = yield* TestService
      const tenant = yield* shared
      const { id } = created(yield* create(url, tenant.management_key, { provider, key }))
      assert.strictEqual(yield* openedKey(tenant, id), key)
    })
  )

  it.effect.prop(
    "any accepted body: shown as given, read as shown, opened as sent (section 4.1 rules 4 and 5, D20 to D23, D26)",
    [acceptedBody(text(1, 60))],
    ([{ allowed_api_key_hashes: hashes, ...given }]) =>
      Effect.gen(function* () {
        const { tenant: shared, url } = yield* TestService
        const tenant = yield* shared
        const own = Array.isArray(hashes) ? { allowed_api_key_hashes: [tenant.management_key_hash] } : {}
        const answer = yield* create(url, tenant.management_key, { ...given, ...own })
        const { created_at: _created_at, declared_region, id, label, sort_order: _order, ...made } = created(answer)
        const { added_later: _added_later, declared_region: asked, key, ...shown } = given
        assert.deepStrictEqual(made, {
          name: null,
          disabled: false,
          is_fallback: false,
          is_required: false,
          is_byok_only: false,
          allowed_api_key_hashes: null,
          allowed_models: null,
          allowed_user_ids: null,
          declared_zdr: null,
          ...shown,
          ...own,
          workspace_id: tenant.workspace_id
        })
        if (typeof asked === "string") assert.strictEqual(declared_region, asked)
        assert.match(String(label), /^([!-~]{1,3}|\*{3})\.{3}([!-~]{1,4}|\*{3})$/)
        assert.strictEqual((yield* get(url, tenant.management_key, String(id))).body, answer.body)
        assert.strictEqual(yield* openedKey(tenant, id), key)
      }),
    { arbitrary: { runs: 60 } }
  )

  it.effect.each([
    ["17 characters", alphabet.slice(0, 17), "***...Q"],
    ["24 characters", alphabet.slice(0, 24), "ABC...UVWX"],
    ["10,000 characters", `sk-${"0".repeat(9_993)}AbCd`, "sk-...AbCd"],
    ["characters that cannot be printed", ` \t\u007f${alphabet.slice(0, 20)}é~!\n`, "***...*~!*"],
    ["22 code points outside the BMP are 22 characters", "😀".repeat(22), "***...***"],
    ["23 code points outside the BMP", "😀".repeat(23), "***...****"],
    ["blanks count", `${" ".repeat(20)}ABC`, "***...*ABC"]
  ])("label of %s (D35)", ([, key, label]) =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      assert.strictEqual(created(yield* create({ provider: "xai", key }))["label"], label)
    })
  )

  it.effect("label: made once and stored; get never opens a key (D35)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const { create, get } = yield* TestService.tenant
      const made = yield* create(minimal)
      const id = createdId(made)
      yield* sql`UPDATE credentials SET sealed = ${Buffer.alloc(100)} WHERE id = ${id}`
      assert.strictEqual((yield* get(id)).body, made.body)
    })
  )
})
