import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Redacted } from "effect"
import { encodeSealingContext } from "../../src/domain/SealedKey.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import * as CipherPlain from "../support/keys/CipherPlain.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { rawKey, sealingContext } from "../support/memory/arbitraries.ts"
import { cipherOn } from "../support/memory/inMemory.ts"

/** The cipher of a keyring, and how many wraps it has counted. */
const cipherWith = (ring: string) =>
  Effect.gen(function* () {
    let wraps = 0
    const spend = () => Effect.sync(() => void (wraps += 1))
    const cipher = yield* Effect.provide(Cipher, cipherOn(ring, spend))
    return { ...cipher, wraps: () => wraps }
  })

const given = Arbitrary.all([rawKey, sealingContext, sealingContext])
type Sample = typeof given extends Arbitrary.Arbitrary<infer A> ? A : never

/** Whether a key that is sealed again opens to itself, under the new context alone, with nothing of the old seal left. */
const isSealedAgain = Effect.fnUntraced(function* (cipher: Cipher["Service"], [key, from, to]: Sample) {
  if (encodeSealingContext(from) === encodeSealingContext(to)) return true
  const opens = (sealed: Parameters<typeof cipher.open>[0], context: Parameters<typeof cipher.open>[1]) =>
    Effect.match(cipher.open(sealed, context), {
      onFailure: ({ _tag }): string => _tag,
      onSuccess: (opened) => Redacted.value(opened)
    })
  const old = yield* cipher.seal(key, from)
  const made = yield* cipher.reseal(old, from, to)
  const oldParts = [old.sealed.subarray(2, 46), old.wrapped_dek.subarray(0, 12)]
  const newBytes = Buffer.concat([made.sealed, made.wrapped_dek])
  const answers = [yield* opens(made, to), yield* opens(made, from), yield* opens({ ...made, sealed: old.sealed }, to)]
  return (
    JSON.stringify(answers) === JSON.stringify([Redacted.value(key), "AuthenticationFailed", "AuthenticationFailed"]) &&
    oldParts.every((part) => !newBytes.includes(Buffer.from(part)))
  )
})

describe("a key whose policy changes (L8)", () => {
  it.effect.prop("is sealed to its new context under a new data key", [given], ([sample]) =>
    Effect.gen(function* () {
      assert.isTrue(yield* isSealedAgain(yield* cipherWith(ringOf("kek")), sample))
    })
  )

  it.effect("is not if the cipher keeps it as it was (control)", () =>
    Effect.gen(function* () {
      const plain = yield* Effect.provide(Cipher, CipherPlain.layer)
      const real = yield* cipherWith(ringOf("kek"))
      const [sample] = yield* Arbitrary.sampleEffect(given, { count: 1, seed: 1 })
      if (sample === undefined) return assert.fail("nothing generated")
      assert.isFalse(yield* isSealedAgain(plain, sample))
      const lazy: Cipher["Service"] = { ...real, reseal: (sealed) => Effect.succeed(sealed) }
      assert.isFalse(yield* isSealedAgain(lazy, sample))
    })
  )

  it.effect("moves to the primary key, which counts the wrap", () =>
    Effect.gen(function* () {
      const before = yield* cipherWith(ringOf("old"))
      const after = yield* cipherWith(ringOf("new", "old"))
      const [sample] = yield* Arbitrary.sampleEffect(given, { count: 1, seed: 2 })
      const [key, from, to] = sample ?? assert.fail("nothing generated")
      const made = yield* after.reseal(yield* before.seal(key, from), from, to)
      assert.strictEqual(made.kek_id, "new")
      assert.strictEqual(after.wraps(), 1)
    })
  )

  it.effect.prop("does not open from an altered row, so it is not sealed again (L7)", [given], ([[key, from, to]]) =>
    Effect.gen(function* () {
      const cipher = yield* cipherWith(ringOf("kek"))
      const sealed = yield* cipher.seal(key, from)
      const altered = { ...from, disabled: !from.disabled }
      for (const call of [cipher.reseal(sealed, altered, to), cipher.holds(sealed, altered, key)]) {
        assert.strictEqual(
          (yield* Effect.flip<unknown, { readonly _tag: string }, never>(call))._tag,
          "AuthenticationFailed"
        )
      }
    })
  )
})

describe("a key that is compared with the sealed one (L6)", () => {
  it.effect.prop("is it if and only if it is equal", [Arbitrary.all([rawKey, rawKey, sealingContext])], ([given]) =>
    Effect.gen(function* () {
      const [key, other, context] = given
      const cipher = yield* cipherWith(ringOf("kek"))
      const sealed = yield* cipher.seal(key, context)
      assert.isTrue(yield* cipher.holds(sealed, context, key))
      const isEqual = Redacted.value(key) === Redacted.value(other)
      assert.strictEqual(yield* cipher.holds(sealed, context, other), isEqual)
      assert.isFalse(yield* cipher.holds(sealed, context, Redacted.make(`${Redacted.value(key)} `)))
    })
  )
})
