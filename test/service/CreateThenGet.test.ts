import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Option, Redacted, Schema } from "effect"
import { TestClock } from "effect/testing"
import { Credential } from "../../src/domain/Credential.ts"
import { labelOf } from "../../src/domain/Label.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { defaults } from "../support/http/Bodies.ts"
import { acceptedBody, givenKey, integer } from "../support/memory/arbitraries.ts"
import { inMemory, own } from "../support/memory/inMemory.ts"
import { addWorkspace, newTenant } from "../support/database/newTenant.ts"
import { create, get } from "../support/service/asTenant.ts"

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
    "is what was requested, with the defaults, and is what get returns (section 4.1 rules 4 and 5)",
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
      }).pipe(Effect.provide(service))
  )

  it.effect.prop("opens, from the stored row, to the exact key that was given (D26)", [accepted], ([{ body }]) =>
    Effect.gen(function* () {
      const { account_id } = yield* newTenant
      yield* own(account_id, body)
      const { id } = yield* create({ account_id }, body)
      const row = Option.getOrThrow(yield* (yield* CredentialRepository).findSealed(account_id, id))
      const opened = yield* (yield* Cipher).open(row.sealed, { ...row.credential, account_id })
      assert.strictEqual(Redacted.value(opened), body["key"])
    }).pipe(Effect.provide(service))
  )

  const createdFrom = (body: object) => Effect.flatMap(newTenant, (tenant) => create(tenant, body))
  const secret = "sk-0123456789abcdef0123-AbCd"

  it.effect("has a UUID of version 7 as id, greater than earlier ones (D34)", () =>
    Effect.gen(function* () {
      const body = { provider: "cohere", key: secret }
      yield* TestClock.setTime(1_700_000_000_000)
      const first = yield* createdFrom(body)
      yield* TestClock.adjust(1)
      const second = yield* createdFrom(body)
      for (const { id } of [first, second]) {
        assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
      }
      assert.isBelow(first.id.localeCompare(second.id), 0)
    }).pipe(Effect.provide(service))
  )

  it.effect.each([
    ["the api_key of key material, not its JSON", { provider: "openai", key: `{"api_key":"${secret}"}` }, "sk-...AbCd"],
    ["the whole key where JSON means nothing", { provider: "cohere", key: `{"api_key":"${secret}"}` }, '{"a...Cd"}']
  ] as const)("has a label made from %s (D35)", ([, body, label]) =>
    Effect.gen(function* () {
      assert.strictEqual((yield* createdFrom(body)).label, label)
    }).pipe(Effect.provide(service))
  )

  it.effect("goes to the requested workspace, in any case, or else to the default one (section 4.1)", () =>
    Effect.gen(function* () {
      const { account_id, workspace_id } = yield* newTenant
      const another = yield* addWorkspace(account_id)
      const created = (body: object) => create({ account_id }, body)
      assert.strictEqual((yield* created({})).workspace_id, workspace_id)
      assert.strictEqual((yield* created({ workspace_id: another })).workspace_id, another)
      assert.strictEqual((yield* created({ workspace_id: another.toUpperCase() })).workspace_id, another)
    }).pipe(Effect.provide(service))
  )
})
