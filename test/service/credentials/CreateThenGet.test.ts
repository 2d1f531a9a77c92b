import { openKey } from "../../../src/service/credentials/StoredKey.ts"
import { Arbitrary, Effect, Option, Redacted, Result, Schema } from "effect"
import { TestClock } from "effect/testing"
import { Credential } from "../../../src/domain/Credential.ts"
import { labelOf } from "../../../src/domain/labelOf.js"
import { Cipher } from "../../../src/port/Cipher.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { contextOf } from "../../../src/domain/SealedKey.ts"
import { defaults } from "../../support/http/Bodies.ts"
import { acceptedBody, givenKey, integer } from "../../support/memory/arbitraries.ts"
import { inMemory, own } from "../../support/memory/inMemory.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { create, get } from "../../support/service/asTenant.ts"
import { assert, describe, it } from "../../support/it.ts"

const service = inMemory()

const encode = Schema.encodeSync(Credential)

/** A body that is accepted, the secret that it was written around, and the time of its arrival. */
const accepted = Arbitrary.flatMap(givenKey, (secret) =>
  Arbitrary.map(
    Arbitrary.all({ body: acceptedBody(Arbitrary.Constant(secret)), millis: integer(0, 4_102_444_800_000) }),
    (given) => ({ secret, ...given })
  )
)

/** The region that a key names, read from its text. */
const regionIn = ({ key, provider }: Record<string, unknown>) => {
  if (provider !== "openai" && provider !== "fireworks") return null
  const named = /^\s*\{[^]*"region": ?"(global|europe|us|eu)"/.exec(String(key))?.[1] ?? null
  return named === "eu" ? "europe" : named
}

describe("a created credential", () => {
  it.effect.prop(
    "has the requested members and defaults, is returned by get, and opens to the exact key (section 4.1, D26, D34, D35)",
    [accepted],
    ([{ body, millis, secret }]) =>
      Effect.gen(function* () {
        const { account_id, workspace_id } = yield* newTenant
        yield* own(account_id, body)
        yield* TestClock.setTime(millis)
        const created = yield* create({ account_id }, body)
        const { added_later: _, key: __, ...given } = body
        assert.deepEqual<unknown>(encode(created), {
          ...defaults,
          ...given,
          declared_region: given["declared_region"] ?? regionIn(body),
          id: created.id,
          workspace_id,
          label: labelOf(secret),
          created_at: new Date(millis).toISOString(),
          sort_order: 0
        })
        const read = yield* get({ account_id }, created.id)
        assert.deepEqual(encode(read), encode(created))
        assert.sameMembers(Object.keys(read), Object.keys(Credential.fields))
        assert.match(read.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
        assert.strictEqual(Number.parseInt(read.id.replace("-", "").slice(0, 12), 16), millis)
        const row = Option.getOrThrow(yield* (yield* CredentialRepository).findSealed(account_id, read.id))
        const opened = openKey(yield* Cipher, row.sealed, contextOf({ ...row.credential, account_id }))
        assert.strictEqual(Redacted.value(Result.getOrThrow(opened)), body["key"])
      }).pipe(Effect.provide(service))
  )
})
