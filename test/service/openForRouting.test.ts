import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Redacted, Schema } from "effect"
import { CurrentCaller } from "../../src/domain/CurrentCaller.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { openForRouting } from "../../src/service/openForRouting.ts"
import { elementOf, text } from "../support/memory/arbitraries.ts"
import { inMemory } from "../support/memory/inMemory.ts"
import { Memory } from "../support/memory/Memory.ts"
import { newTenant } from "../support/database/newTenant.ts"

const service = inMemory()

const created = Effect.fnUntraced(function* (key: string, disabled: boolean) {
  const { create } = yield* Credentials
  const { account_id } = yield* newTenant
  const input = Schema.decodeUnknownSync(NewCredential)({ provider: "cohere", key, disabled })
  return { account_id, credential: yield* Effect.provideService(create(input), CurrentCaller, { account_id }) }
})

describe("a router", () => {
  it.effect.prop(
    "is offered a credential with the key as it was given, unless it is disabled (D26, D44)",
    [text(1, 60), elementOf([true, false])],
    ([given, disabled]) =>
      Effect.gen(function* () {
        const { account_id, credential } = yield* created(given, disabled)
        const offered = yield* openForRouting(account_id, credential.id)
        if (disabled) return assert.isTrue(Option.isNone(offered))
        const { key, ...rest } = Option.getOrThrow(offered)
        assert.strictEqual(Redacted.value(key), given)
        assert.deepStrictEqual(rest, { credential })
      }).pipe(Effect.provide(service))
  )

  it.effect("is offered nothing of another account (T6)", () =>
    Effect.gen(function* () {
      const { account_id, credential } = yield* created("fake-key", false)
      const { account_id: other } = yield* newTenant
      assert.isTrue(Option.isSome(yield* openForRouting(account_id, credential.id)))
      assert.isTrue(Option.isNone(yield* openForRouting(other, credential.id)))
    }).pipe(Effect.provide(service))
  )

  it.effect("is offered nothing that was enabled behind the service's back (T2, D44)", () =>
    Effect.gen(function* () {
      const { account_id, credential } = yield* created("fake-key", true)
      const { credentials } = yield* Memory
      const row = credentials.get(credential.id)
      if (row === undefined) return assert.fail("not stored")
      credentials.set(credential.id, { ...row, credential: { ...credential, disabled: false } })
      const { _tag } = yield* Effect.flip(openForRouting(account_id, credential.id))
      assert.strictEqual(_tag, "AuthenticationFailed")
    }).pipe(Effect.provide(service))
  )
})
