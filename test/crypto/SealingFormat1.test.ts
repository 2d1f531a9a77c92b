import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Result } from "effect"
import { makeKek } from "../../src/crypto/keyring/Kek.ts"
import { makeWith } from "../../src/crypto/keyring/KeyEncryptionKeyring.ts"
import { seal as sealUnder } from "../../src/crypto/SealingFormat1.ts"
import { encodeSealingContext } from "../../src/domain/SealingContext.ts"
import { AuthenticationFailed } from "../../src/port/CipherErrors.ts"
import { anyString, bytes, elementOf, sealingContext, text } from "../support/memory/arbitraries.ts"
import { open, seal } from "../support/keys/sealing.ts"
import { sealByTheBook } from "./SealByTheBook.ts"

const sealing = Arbitrary.all({
  kek: bytes(32, 32),
  kek_id: elementOf(["K", "kek-1", "kek.2_b", "k".repeat(64)]),
  random: bytes(56, 56),
  plaintext: bytes(0, 200),
  context: Arbitrary.map(sealingContext, encodeSealingContext)
})
const kekOf = ({ kek, kek_id }: { readonly kek: Buffer; readonly kek_id: string }) => makeKek(kek_id, Buffer.from(kek))

describe("sealing format 1 (security.md)", () => {
  it.prop("opens to what was sealed, whatever it was", [sealing], ([given]) => {
    const context = Buffer.from(given.context)
    const sealed = seal(kekOf(given), given.plaintext, context)
    assert.deepStrictEqual(open(kekOf(given), sealed, context), Result.succeed(given.plaintext))
  })

  it.prop("opens to the very text that was sealed", [text(1, 60), sealing], ([key, given]) => {
    const sealed = seal(kekOf(given), Buffer.from(key), Buffer.from(given.context))
    const opened = Result.getOrThrow(open(kekOf(given), sealed, Buffer.from(given.context)))
    assert.strictEqual(opened.toString("utf8"), key)
  })

  it.prop("is byte for byte what the page says, made there without this code", [sealing], ([given]) => {
    const made = seal(
      kekOf(given),
      given.plaintext,
      Buffer.from(given.context),
      (target) => void given.random.copy(target)
    )
    assert.deepEqual(made, sealByTheBook(given))
  })

  it.prop("has the lengths, version and suite that the page says", [sealing], ([given]) => {
    const { kek_id, sealed, wrapped_dek } = seal(kekOf(given), given.plaintext, Buffer.from(given.context))
    assert.strictEqual(kek_id, given.kek_id)
    assert.strictEqual(wrapped_dek.length, 60)
    assert.strictEqual(sealed.length, 62 + given.plaintext.length)
    assert.deepStrictEqual(Array.from(sealed.subarray(0, 2)), [1, 1])
  })

  it.prop("never seals the same key to the same bytes twice: nothing tells equal keys (T1)", [sealing], ([given]) => {
    const [one, other] = [1, 2].map(() => seal(kekOf(given), given.plaintext, Buffer.from(given.context)))
    assert.notDeepEqual(one?.wrapped_dek, other?.wrapped_dek)
    assert.notDeepEqual(one?.sealed.subarray(2, 34), other?.sealed.subarray(2, 34))
    assert.notDeepEqual(one?.sealed.subarray(34, 46), other?.sealed.subarray(34, 46))
  })

  it("does not hold the key, nor the bytes it was handed, in the clear", () => {
    const dek = Buffer.alloc(32, "D")
    const plaintext = Buffer.from("fake-key-0123456789")
    const kek = makeKek("kek-1", Buffer.alloc(32, "ke"))
    let filled: Buffer = Buffer.alloc(0)
    const keys = makeWith({ current: () => ({ primary: kek, byId: new Map([[kek.id, kek]]) }) })
    const sealing = sealUnder(keys, kek.id, plaintext, Buffer.from("[]"), (target) => {
      target.fill("N").set(dek)
      filled = target
    })
    const { sealed, wrapped_dek } = Effect.runSync(sealing)
    for (const written of [sealed, wrapped_dek]) {
      assert.isFalse(Buffer.from(written).includes(plaintext))
      assert.isFalse(Buffer.from(written).includes(dek.subarray(0, 8)))
    }
    assert.deepStrictEqual(filled.subarray(0, 32), Buffer.alloc(32))
  })

  it.prop("does not open with a data key of another length, though everything else fits", [sealing], ([given]) => {
    for (const length of [16, 31, 33, 64]) {
      const sealed = sealByTheBook(given, { dek: Buffer.alloc(length, given.random) })
      const opened = open(kekOf(given), sealed, Buffer.from(given.context))
      assert.deepStrictEqual(opened, Result.fail(new AuthenticationFailed()))
    }
  })

  it.prop("takes a KEK over: the bytes it was made of are wiped", [bytes(32, 32)], ([given]) => {
    makeKek("kek-1", given)
    assert.deepStrictEqual(given, Buffer.alloc(32))
  })
})

describe("the context that a key is sealed to (security.md, Sealing)", () => {
  it.prop("is the written list, in the written order", [sealingContext], ([context]) => {
    assert.deepStrictEqual(JSON.parse(encodeSealingContext(context)), [
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

  it.prop(
    "tells two lists of texts apart, however they are written",
    [anyString, anyString, sealingContext],
    ([one, other, context]) => {
      const joined = encodeSealingContext({ ...context, allowed_models: [one + other] })
      assert.notStrictEqual(joined, encodeSealingContext({ ...context, allowed_models: [one, other] }))
      assert.notStrictEqual(
        joined,
        encodeSealingContext({ ...context, allowed_models: null, allowed_user_ids: [one + other] })
      )
    }
  )
})
