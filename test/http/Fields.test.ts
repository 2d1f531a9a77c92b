import { assert } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { acceptedBody, givenKey } from "../support/memory/arbitraries.ts"
import { created, createdId, defaults, minimal } from "../support/http/Bodies.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"

/** What a router would get to call upstream with. */
const openedKey = Effect.fnUntraced(function* ({ account_id }: Tenant, id: unknown) {
  const repository = yield* CredentialRepository
  const found = yield* repository.findSealed(account_id, CredentialId.make(String(id)))
  const { credential, sealed } = Option.getOrThrow(found)
  return Redacted.value(yield* (yield* Cipher).open(sealed, { ...credential, account_id }))
})

const { declared_region: _, ...withoutRegion } = defaults

layerLive(TestService.layer)("fields (section 4.1)", (it) => {
  it.effect.each([
    ["first the accepted value", '{"key":"first","key":"second","provider":"xai","provider":"azure"}'],
    ["first a refused value", '{"key":5,"provider":"nobody","key":"second","provider":"azure"}']
  ])("a repeated member: the last one counts, %s (D13)", ([, body]) =>
    Effect.gen(function* () {
      const tenant = yield* TestService.tenant
      const made = created(yield* tenant.create(body))
      assert.strictEqual(made["provider"], "azure")
      assert.strictEqual(yield* openedKey(tenant, made["id"]), "second")
    })
  )

  it.effect.each([
    ["blanks and a byte order mark in it", "xai", "sk  padded \ufeff\t\n\r."],
    ["control characters and line separators", "xai", "[\u0001\u001f\u007f\u0085\u2028\u2029]"],
    ["characters outside the BMP and noncharacters", "xai", "\u{1f600}\u{10ffff}\uffff\ufffd"],
    ["JSON of a provider whose keys are plain", "anthropic", '{ "api_key" : "" , "region":"mars" }'],
    [
      "key material, blanks, order and unknown members and all",
      "openai",
      ' {\n"region" : "us",\t"api_key":"sk-\\u0041", "api_key":"sk-2", "n": 1.0 } '
    ],
    ["200,000 characters", "xai", "0123456789".repeat(20_000)]
  ])("key: opens byte for byte as given: %s (D26)", ([, provider, key]) =>
    Effect.gen(function* () {
      const tenant = yield* TestService.tenant
      const { id } = created(yield* tenant.create({ provider, key }))
      assert.strictEqual(yield* openedKey(tenant, id), key)
    })
  )

  it.effect.prop(
    "any accepted body: shown as given, read as shown, opened as sent (section 4.1 rules 4 and 5, D20 to D23, D26)",
    [acceptedBody(givenKey)],
    ([{ allowed_api_key_hashes: hashes, ...given }]) =>
      Effect.gen(function* () {
        const tenant = yield* TestService.tenant
        const own = Array.isArray(hashes) ? { allowed_api_key_hashes: [tenant.management_key_hash] } : {}
        const answer = yield* tenant.create({ ...given, ...own })
        const { created_at: _created_at, declared_region, id, label, sort_order: _order, ...made } = created(answer)
        const { added_later: _added_later, declared_region: asked, key, ...shown } = given
        assert.deepStrictEqual(made, {
          ...withoutRegion,
          ...shown,
          ...own,
          workspace_id: tenant.workspace_id
        })
        if (typeof asked === "string") assert.strictEqual(declared_region, asked)
        assert.match(String(label), /^([!-~]{1,3}|\*{3})\.{3}([!-~]{1,4}|\*{3})$/)
        assert.strictEqual((yield* tenant.get(String(id))).body, answer.body)
        assert.strictEqual(yield* openedKey(tenant, id), key)
      }),
    { arbitrary: { runs: 60 } }
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
