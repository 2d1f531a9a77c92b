import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { parseKeyring } from "../../src/crypto/keyring/Keyring.ts"
import * as RewrapperLive from "../../src/crypto/RewrapperLive.ts"
import { WrapBudget } from "../../src/crypto/WrapBudget.ts"
import { encodeSealingContext } from "../../src/domain/SealedKey.ts"
import { KeyStoreUnavailable } from "../../src/port/Cipher.ts"
import { Rewrapper } from "../../src/port/Rewrapper.ts"
import { sealingContext } from "../support/memory/arbitraries.ts"
import { fixedKeyring, keyringEncryption, ringOf } from "../support/keys/keyrings.ts"
import { open, seal } from "../support/keys/sealing.ts"

const rewrapperWith = (ring: string, spend: WrapBudget["Service"]["spend"] = () => Effect.void) =>
  Effect.provide(
    Rewrapper,
    RewrapperLive.layer.pipe(
      Layer.provide([keyringEncryption, Layer.succeed(WrapBudget, { spend })]),
      Layer.provide(fixedKeyring(ring))
    )
  )
const kekOf = (id: string) => parseKeyring(ringOf(id)).primary ?? assert.fail("no key")

describe("a rewrapper (T10; SECURITY.md, Rotating the keyring)", () => {
  it.effect("has the keys of the keyring, of which the first is primary", () =>
    Effect.gen(function* () {
      const { kek_ids, primary } = yield* rewrapperWith(ringOf("new", "old", "older"))
      assert.deepStrictEqual([primary, ...kek_ids], ["new", "new", "old", "older"])
    })
  )

  it.effect("cannot be made from an empty keyring", () =>
    Effect.gen(function* () {
      const refused = yield* Effect.flip(rewrapperWith(""))
      assert.strictEqual(refused.reason, "the keyring is empty")
    })
  )

  it.effect.prop("rewraps under the primary key what any of its keys has wrapped", [sealingContext], ([context]) =>
    Effect.gen(function* () {
      const { rewrap } = yield* rewrapperWith(ringOf("new", "old"))
      const aad = Buffer.from(encodeSealingContext(context))
      const plaintext = Buffer.from("fake-key")
      for (const id of ["old", "new"]) {
        const sealed = seal(kekOf(id), plaintext, aad)
        const wrapped = Result.getOrThrow(yield* rewrap(sealed, context))
        assert.strictEqual(wrapped.kek_id, "new")
        assert.deepStrictEqual(open(kekOf("new"), { ...sealed, ...wrapped }, aad), Result.succeed(plaintext))
      }
      const lost = yield* rewrap(seal(kekOf("lost"), plaintext, aad), context)
      assert.deepInclude<unknown>(Result.isFailure(lost) ? lost.failure : undefined, {
        _tag: "UnknownKeyId",
        kek_id: "lost"
      })
    })
  )

  it.effect("counts every wrap of the primary key, and stops at the first refusal", () =>
    Effect.gen(function* () {
      const spent: Array<string> = []
      const { spend } = yield* rewrapperWith(ringOf("new", "old"), (kek_id) =>
        spent.push(kek_id) > 5 ? Effect.fail(new KeyStoreUnavailable({ reason: "enough" })) : Effect.void
      )
      assert.isUndefined(yield* spend(3))
      assert.deepStrictEqual(spent, ["new", "new", "new"])
      assert.strictEqual((yield* Effect.flip(spend(10))).reason, "enough")
      assert.lengthOf(spent, 6)
    })
  )
})
