import { openKey } from "../../src/service/credentials/StoredKey.ts"
import { Effect, Option, Redacted } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import { assert, layerLive } from "../support/it.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { assertInvalid } from "../support/http/Refusal.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"

/** The key that a router would get for a credential. */
const openedKey = Effect.fnUntraced(function* ({ account_id }: Tenant, id: unknown) {
  const repository = yield* CredentialRepository
  const found = yield* repository.findSealed(account_id, CredentialId.make(String(id)))
  const { credential, sealed } = Option.getOrThrow(found)
  const opened = openKey(yield* Cipher, sealed, contextOf({ ...credential, account_id }))
  return Redacted.value(yield* Effect.fromResult(opened))
})

layerLive(TestService.layer)("a created credential (sections 2.1 and 4)", (it) => {
  it.effect(
    "create stores the last value of a repeated member byte for byte, even if the first is invalid (D13, D26)",
    function* () {
      const tenant = yield* TestService.tenant
      const key = "sk  inside é\u0301 [\u{10ffff}\uffff]."
      const body = `{"key":5,"provider":"nobody","key":${JSON.stringify(key)},"provider":"azure"}`
      const { id, provider } = created(yield* tenant.create(body))
      assert.strictEqual(provider, "azure")
      assert.strictEqual(yield* openedKey(tenant, id), key)
    }
  )

  it.effect("get shows the label stored at creation, without decrypting the key (D35)", function* () {
    const { sql } = yield* TestService
    const { create, get } = yield* TestService.tenant
    const made = yield* create(minimal)
    const id = createdId(made)
    yield* sql`UPDATE credentials SET sealed = ${Buffer.alloc(100)} WHERE id = ${id}`
    assert.strictEqual((yield* get(id)).body, made.body)
  })

  it.effect.each([
    [
      "a provider that only a newer version knows",
      { provider: "of-tomorrow/2" },
      ["provider"],
      "must be a known provider slug"
    ],
    [
      "a model name of 300 characters",
      { allowed_models: ["m".repeat(300)] },
      ["allowed_models", 0],
      "must have at most 255 characters"
    ]
  ] as const)(
    "get and list show a stored credential with %s, though create refuses it (F4, D46)",
    function* ([, other, path, message]) {
      const { sql } = yield* TestService
      const { create, get, list } = yield* TestService.newTenant
      const made = created(yield* create(minimal))
      yield* sql`
        INSERT INTO pools (account_id, workspace_id, provider)
        SELECT account_id, workspace_id, 'of-tomorrow/2' FROM pools WHERE workspace_id = ${made["workspace_id"]}`
      yield* sql`UPDATE credentials SET ${sql.update(other)} WHERE id = ${made["id"]}`
      const shown = { ...made, ...other }
      assert.deepStrictEqual(JSON.parse((yield* get(String(made["id"]))).body), { data: shown })
      assert.deepStrictEqual(JSON.parse((yield* list()).body), { data: [shown], total_count: 1 })
      assertInvalid(yield* create({ ...minimal, ...other }), { path, message })
    }
  )
})
