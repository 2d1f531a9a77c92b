import { Arbitrary, Result } from "effect"
import { makeKek } from "../../src/crypto/keyring/Keyring.ts"
import { seal as sealUnder } from "../../src/crypto/SealingFormat1.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import { AuthenticationFailed, UnsupportedFormat } from "../../src/port/Cipher.ts"
import { bytes, elementOf, sealingContext } from "../support/memory/arbitraries.ts"
import { flipped, open, rewrap, seal } from "../support/keys/sealing.ts"
import { sealByTheBook } from "./SealByTheBook.ts"
import { Decipheriv } from "node:crypto"
import { vi } from "vitest"
import { assert, describe, it } from "../support/it.ts"

const sealing = Arbitrary.all({
  kek: bytes(32, 32),
  kek_id: elementOf(["K", "kek-1", "kek.2_b", "k".repeat(64)]),
  random: bytes(56, 56),
  plaintext: bytes(0, 200),
  context: Arbitrary.map(sealingContext, contextOf)
})
const kekOf = ({ kek, kek_id }: { readonly kek: Buffer; readonly kek_id: string }) => makeKek(kek_id, Buffer.from(kek))

describe("sealing format 1 (SECURITY.md, Sealing format 1)", () => {
  it.prop("opens to the plaintext that was sealed, for any plaintext", [sealing], ([given]) => {
    const context = Buffer.from(given.context)
    const sealed = seal(kekOf(given), given.plaintext, context)
    assert.deepStrictEqual(open(kekOf(given), sealed, context), Result.succeed(given.plaintext))
  })

  it.prop("seals to the same bytes as an independent implementation of SECURITY.md", [sealing], ([given]) => {
    const made = seal(
      kekOf(given),
      given.plaintext,
      Buffer.from(given.context),
      (target) => void given.random.copy(target)
    )
    assert.deepEqual(made, sealByTheBook(given))
  })

  it.prop(
    "never seals the same key to the same bytes twice, so equal keys cannot be recognised (T1)",
    [sealing],
    ([given]) => {
      const [one, other] = [1, 2].map(() => seal(kekOf(given), given.plaintext, Buffer.from(given.context)))
      assert.notDeepEqual(one?.wrapped_dek, other?.wrapped_dek)
      assert.notDeepEqual(one?.sealed.subarray(2, 34), other?.sealed.subarray(2, 34))
      assert.notDeepEqual(one?.sealed.subarray(34, 46), other?.sealed.subarray(34, 46))
    }
  )

  it("stores neither provider key nor data key in plain text, and wipes the data key (T1)", () => {
    const dek = Buffer.alloc(32, "D")
    const plaintext = Buffer.from("fake-key-0123456789")
    const kek = makeKek("kek-1", Buffer.alloc(32, "ke"))
    let filled: Buffer = Buffer.alloc(0)
    const { sealed, wrapped_dek } = sealUnder(kek, plaintext, Buffer.from("[]"), (target) => {
      target.fill("N")
      if (target.length < dek.length) return
      target.set(dek)
      filled = target
    })
    for (const written of [sealed, wrapped_dek]) {
      assert.isFalse(Buffer.from(written).includes(plaintext))
      assert.isFalse(Buffer.from(written).includes(dek.subarray(0, 8)))
    }
    assert.deepStrictEqual(filled.subarray(0, 32), Buffer.alloc(32))
  })

  it.prop("does not open with a data key that is not 32 bytes, even if all else is valid", [sealing], ([given]) => {
    for (const length of [16, 31, 33, 64]) {
      const sealed = sealByTheBook(given, { dek: Buffer.alloc(length, given.random) })
      const opened = open(kekOf(given), sealed, Buffer.from(given.context))
      assert.deepStrictEqual(opened, Result.fail(new AuthenticationFailed()))
    }
  })
})

describe("the context that a key is sealed to (T2; SECURITY.md, Sealing format 1)", () => {
  it.prop("encodes the fields that SECURITY.md lists, in the same order", [sealingContext], ([context]) => {
    assert.deepStrictEqual(JSON.parse(contextOf(context)), [
      "byok/credential/1",
      context.account_id,
      context.workspace_id,
      context.id,
      context.provider,
      context.disabled,
      context.is_fallback,
      context.is_required,
      context.is_byok_only,
      context.allowed_api_key_hashes,
      context.allowed_models,
      context.allowed_user_ids,
      context.declared_region,
      context.declared_zdr
    ])
  })
})

const rotation = Arbitrary.map(
  Arbitrary.all({
    from: bytes(32, 32),
    to: bytes(32, 32),
    random: bytes(56, 56),
    plaintext: bytes(1, 80),
    context: Arbitrary.map(sealingContext, (context) => Buffer.from(contextOf(context)))
  }),
  (given) => ({
    ...given,
    from: makeKek("old", Buffer.from(given.from)),
    to: makeKek("new", Buffer.from(given.to)),
    toBytes: given.to
  })
)
const altered = Result.fail(new AuthenticationFailed())

describe("rewrapping a data key (T10; docs/keys.md, Rotate the keyring)", () => {
  it.prop("gives the bytes that SECURITY.md specifies for sealing under the new key", [rotation], ([given]) => {
    const { context, from, plaintext, random, to, toBytes } = given
    const before = seal(from, plaintext, context, (target) => void random.copy(target))
    const nonce = (target: Buffer) => void random.copy(target, 0, 32, 44)
    const made = Result.getOrThrow(rewrap(from, to, before, context, nonce))
    const book = sealByTheBook({ kek: toBytes, kek_id: "new", random, plaintext, context: context.toString("utf8") })
    assert.deepEqual({ ...made, sealed: before.sealed }, book)
  })

  it.prop("reads only the first two bytes of the sealed key, and never reuses a nonce", [rotation], ([given]) => {
    const { context, from, plaintext, to } = given
    const before = seal(from, plaintext, context)
    const head = { ...before, sealed: before.sealed.subarray(0, 2) }
    const [one, other] = [1, 2].map(() => Result.getOrThrow(rewrap(from, to, head, context)))
    assert.notDeepEqual(one?.wrapped_dek.subarray(0, 12), other?.wrapped_dek.subarray(0, 12))
    assert.deepStrictEqual(open(to, { ...before, ...one }, context), Result.succeed(plaintext))
  })

  it("fails if any bit of the wrapped key is flipped, or with another context or key (T3)", () => {
    const [from, to] = [makeKek("old", Buffer.alloc(32, "old")), makeKek("new", Buffer.alloc(32, "new"))]
    const context = Buffer.from("context")
    const sealed = seal(from, Buffer.from("fake-key"), context)
    for (let bit = 0; bit < sealed.wrapped_dek.length * 8; bit++) {
      const changed = { ...sealed, wrapped_dek: flipped(sealed.wrapped_dek, bit) }
      assert.deepStrictEqual(rewrap(from, to, changed, context), altered)
    }
    assert.deepStrictEqual(rewrap(from, to, sealed, Buffer.concat([context, Buffer.of(32)])), altered)
    assert.deepStrictEqual(rewrap(to, from, sealed, context), altered)
  })

  it.prop("fails as unsupported with another version or suite", [rotation], ([{ context, from, plaintext, to }]) => {
    const { sealed, wrapped_dek } = seal(from, plaintext, context)
    for (const head of [[2, 1], [1, 2], [0, 0], [1], []]) {
      const refused = rewrap(from, to, { sealed: Buffer.from(head), wrapped_dek }, context)
      assert.deepStrictEqual(refused, Result.fail(new UnsupportedFormat()))
    }
    assert.isTrue(Result.isSuccess(rewrap(from, to, { sealed, wrapped_dek }, context)))
  })

  it("wipes the plain data key afterwards, even if no random nonce can be generated", () => {
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
