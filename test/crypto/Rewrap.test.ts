import { Decipheriv } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Result } from "effect"
import { vi } from "vitest"
import { makeKek } from "../../src/crypto/keyring/Kek.ts"
import { encodeSealingContext } from "../../src/domain/SealingContext.ts"
import { AuthenticationFailed, UnsupportedFormat } from "../../src/port/CipherErrors.ts"
import { bytes, sealingContext } from "../support/memory/arbitraries.ts"
import { open, rewrap, seal } from "../support/keys/sealing.ts"
import { sealByTheBook } from "./SealByTheBook.ts"

const rotation = Arbitrary.map(
  Arbitrary.all({
    from: bytes(32, 32),
    to: bytes(32, 32),
    random: bytes(56, 56),
    plaintext: bytes(1, 80),
    context: Arbitrary.map(sealingContext, (context) => Buffer.from(encodeSealingContext(context)))
  }),
  (given) => ({
    ...given,
    from: makeKek("old", Buffer.from(given.from)),
    to: makeKek("new", Buffer.from(given.to)),
    toBytes: given.to
  })
)
const altered = Result.fail(new AuthenticationFailed())

describe("wrapping a data key anew (T10, security.md)", () => {
  it.prop("what was sealed opens under the new key, and under the new key only", [rotation], ([given]) => {
    const { context, from, plaintext, to } = given
    const before = seal(from, plaintext, context)
    const after = { ...before, ...Result.getOrThrow(rewrap(from, to, before, context)) }
    assert.strictEqual(after.kek_id, "new")
    assert.deepStrictEqual(open(to, after, context), Result.succeed(plaintext))
    assert.deepStrictEqual(open(from, after, context), altered)
    assert.deepStrictEqual(open(from, before, context), Result.succeed(plaintext), "an old row still needs the old key")
  })

  it.prop("is what sealing under the new key would have made, by the page", [rotation], ([given]) => {
    const { context, from, plaintext, random, to, toBytes } = given
    const before = seal(from, plaintext, context, (target) => void random.copy(target))
    const nonce = (target: Buffer) => void random.copy(target, 0, 32, 44)
    const made = Result.getOrThrow(rewrap(from, to, before, context, nonce))
    const book = sealByTheBook({ kek: toBytes, kek_id: "new", random, plaintext, context: context.toString("utf8") })
    assert.deepEqual({ ...made, sealed: before.sealed }, book)
  })

  it.prop("two bytes of what is sealed are enough, and no nonce is used twice", [rotation], ([given]) => {
    const { context, from, plaintext, to } = given
    const before = seal(from, plaintext, context)
    const head = { ...before, sealed: before.sealed.subarray(0, 2) }
    const [one, other] = [1, 2].map(() => Result.getOrThrow(rewrap(from, to, head, context)))
    assert.notDeepEqual(one?.wrapped_dek.subarray(0, 12), other?.wrapped_dek.subarray(0, 12))
    assert.deepStrictEqual(open(to, { ...before, ...one }, context), Result.succeed(plaintext))
  })

  it.prop("every flipped bit, another context or key: nothing is wrapped", [rotation], ([given]) => {
    const { context, from, plaintext, to } = given
    const sealed = seal(from, plaintext, context)
    for (let bit = 0; bit < sealed.wrapped_dek.length * 8; bit++) {
      const wrapped_dek = Buffer.from(sealed.wrapped_dek)
      wrapped_dek.writeUInt8(wrapped_dek.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
      assert.deepStrictEqual(rewrap(from, to, { ...sealed, wrapped_dek }, context), altered)
    }
    assert.deepStrictEqual(rewrap(from, to, sealed, Buffer.concat([context, Buffer.of(32)])), altered)
    assert.deepStrictEqual(rewrap(to, from, sealed, context), altered)
  })

  it.prop("another version or suite is told, not guessed at", [rotation], ([{ context, from, plaintext, to }]) => {
    const { sealed, wrapped_dek } = seal(from, plaintext, context)
    for (const head of [[2, 1], [1, 2], [0, 0], [1], []]) {
      const refused = rewrap(from, to, { sealed: Buffer.from(head), wrapped_dek }, context)
      assert.deepStrictEqual(refused, Result.fail(new UnsupportedFormat()))
    }
    assert.isTrue(Result.isSuccess(rewrap(from, to, { sealed, wrapped_dek }, context)))
  })

  it("the data key is in the clear only while it is wrapped, and not when no nonce can be had either", () => {
    const [from, to] = [makeKek("old", Buffer.alloc(32, "old")), makeKek("new", Buffer.alloc(32, "new"))]
    const dek = Buffer.alloc(32, "D")
    const context = Buffer.from("context")
    const sealed = seal(from, Buffer.from("fake-key"), context, (target) => target.fill("N").set(dek))
    const update = vi.spyOn(Decipheriv.prototype, "update")
    const seen: Array<string> = []
    const shown = () => String(update.mock.results.at(-1)?.value)
    try {
      rewrap(from, to, sealed, context, () => void seen.push(shown()))
      seen.push(shown())
      assert.throws(() =>
        rewrap(from, to, sealed, context, () => {
          throw new Error("no random bytes")
        })
      )
      seen.push(shown())
    } finally {
      update.mockRestore()
    }
    assert.deepStrictEqual(seen, [dek.toString(), "\0".repeat(32), "\0".repeat(32)])
  })
})
