import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Redacted } from "effect"
import { encodeSealingContext } from "../../src/domain/SealedKey.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import * as CipherPlain from "../support/keys/CipherPlain.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { rawKey, sealingContext } from "../support/memory/arbitraries.ts"
import { cipherOn } from "../support/memory/inMemory.ts"

const given = Arbitrary.all([rawKey, sealingContext, sealingContext])
type Sample = typeof given extends Arbitrary.Arbitrary<infer A> ? A : never

const reading = (key: Buffer) => key.toString("utf8")

/** Whether a key is proved under its own context alone, and then opens as often as it is asked for. */
const isProved = Effect.fnUntraced(function* ([key, context, other]: Sample) {
  if (encodeSealingContext(context) === encodeSealingContext(other)) return true
  const { prepare, seal } = yield* Cipher
  const sealed = yield* seal(key, context)
  const prepared = yield* prepare(sealed, context)
  const read = [yield* prepared.read(reading), yield* prepared.read(reading)]
  const commitment = Buffer.from(sealed.sealed)
  commitment.writeUInt8(commitment.readUInt8(2) ^ 1, 2)
  const refused = yield* Effect.all([
    Effect.match(prepare(sealed, other), { onFailure: ({ _tag }): string => _tag, onSuccess: () => "proved" }),
    Effect.match(prepare({ ...sealed, sealed: commitment }, context), {
      onFailure: ({ _tag }): string => _tag,
      onSuccess: () => "proved"
    })
  ])
  return (
    read.every((text) => text === Redacted.value(key)) && refused.every((answer) => answer === "AuthenticationFailed")
  )
})

describe("a key that is prepared", () => {
  it.effect.prop("was sealed to the very context that it is prepared with (Q20)", [given], ([sample]) =>
    Effect.gen(function* () {
      assert.isTrue(yield* isProved(sample))
    }).pipe(Effect.provide(cipherOn(ringOf("kek"))))
  )

  it.effect("is not with a cipher that binds nothing (Q20, control)", () =>
    Effect.gen(function* () {
      const [sample] = yield* Arbitrary.sampleEffect(given, { count: 1, seed: 1 })
      if (sample === undefined) return assert.fail("nothing generated")
      assert.isFalse(yield* isProved(sample))
    }).pipe(Effect.provide(CipherPlain.layer))
  )

  it.effect("is in the clear only while it is read", () =>
    Effect.gen(function* () {
      const [sample] = yield* Arbitrary.sampleEffect(given, { count: 1, seed: 1 })
      if (sample === undefined) return assert.fail("nothing generated")
      const { prepare, seal } = yield* Cipher
      const prepared = yield* prepare(yield* seal(sample[0], sample[1]), sample[1])
      const buffer = yield* prepared.read((key) => key)
      assert.isTrue(buffer.every((byte) => byte === 0))
      assert.isAbove(buffer.length, 0)
    }).pipe(Effect.provide(cipherOn(ringOf("kek"))))
  )
})
