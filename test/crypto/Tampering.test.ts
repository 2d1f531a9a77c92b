import { createDecipheriv } from "node:crypto"
import { Result } from "effect"
import { makeKek } from "../../src/crypto/keyring/Keyring.ts"
import type { SealedKey } from "../../src/domain/SealedKey.ts"
import { flipped, open, seal } from "../support/keys/sealing.ts"
import { gcm, hkdf64, sealByTheBook } from "./SealByTheBook.ts"
import { assert, describe, it } from "../support/it.ts"

type Row = Pick<SealedKey, "sealed" | "wrapped_dek">

/** Seals a text to a context, and tells whether a row opens. */
interface Sealer {
  readonly seal: (text: string, context: Uint8Array) => Row
  readonly opens: (row: Row, context: Uint8Array) => boolean
}

const everyFlip = (given: Uint8Array) => Array.from({ length: given.length * 8 }, (_, bit) => flipped(given, bit))
const everyTruncation = (given: Uint8Array) =>
  Array.from({ length: given.length }, (_, length) => [
    Buffer.from(given.subarray(0, length)),
    Buffer.from(given.subarray(given.length - length))
  ]).flat()
const everyExtension = (given: Uint8Array) =>
  Array.from({ length: 64 }, (_, index) => {
    const [zeros, more] = [Buffer.alloc(index + 1), Buffer.alloc(index + 1, given)]
    return [
      Buffer.concat([given, zeros]),
      Buffer.concat([given, more]),
      Buffer.concat([zeros, given]),
      Buffer.concat([given.subarray(0, 34), zeros, given.subarray(34)])
    ]
  }).flat()
const manglings = { flips: everyFlip, truncations: everyTruncation, extensions: everyExtension }

const context = Buffer.from('["a context","caf\u00e9"]')
const key = "fake-key-0123456789-AbCd"

/** The number of mangled rows that a sealer accepts, by the part and the kind of change. */
const accepted = ({ opens, seal }: Sealer) => {
  const { sealed, wrapped_dek } = seal(key, context)
  const other = seal("fake-key-of-another-row", Buffer.from('["another context"]'))
  assert.isTrue(opens({ sealed, wrapped_dek }, context))
  const count = (mangle: (given: Uint8Array) => ReadonlyArray<Buffer>) => ({
    sealed: mangle(sealed).filter((changed) => opens({ sealed: changed, wrapped_dek }, context)).length,
    wrapped_dek: mangle(wrapped_dek).filter((changed) => opens({ sealed, wrapped_dek: changed }, context)).length,
    context: mangle(context).filter((changed) => opens({ sealed, wrapped_dek }, changed)).length
  })
  return {
    flips: count(manglings.flips),
    truncations: count(manglings.truncations),
    extensions: count(manglings.extensions),
    swaps: [other, { sealed, wrapped_dek: other.wrapped_dek }, { sealed: other.sealed, wrapped_dek }].filter((row) =>
      opens(row, context)
    ).length
  }
}

const bytes = Buffer.alloc(32, "0123456789abcdef0123456789ABCDEF")
const kek = makeKek("kek-1", Buffer.from(bytes))
const format1: Sealer = {
  seal: (text, to) => seal(kek, Buffer.from(text), to),
  opens: (row, to) => Result.isSuccess(open(kek, row, to))
}

describe("a sealed key that was tampered with (T3)", () => {
  it("does not open with a bit flipped, bytes cut off or added, or parts swapped with another row", () => {
    const none = { sealed: 0, wrapped_dek: 0, context: 0 }
    assert.deepStrictEqual(accepted(format1), { flips: none, truncations: none, extensions: none, swaps: 0 })
  })

  it("does not open under the same key if its id has a bit flipped, is cut or is extended", () => {
    const row = format1.seal(key, context)
    const ids = Object.values(manglings).flatMap((mangle) =>
      mangle(Buffer.from(kek.kek_id)).map((id) => id.toString("latin1"))
    )
    const under = (id: string) => Result.isSuccess(open(makeKek(id, Buffer.from(bytes)), row, context))
    assert.isTrue(under(kek.kek_id))
    assert.deepStrictEqual(ids.filter(under), [])
  })

  it("does not open under any other key with the same id", () => {
    const row = format1.seal(key, context)
    const under = (other: Buffer) => Result.isSuccess(open(makeKek(kek.kek_id, other), row, context))
    assert.isTrue(under(Buffer.from(bytes)))
    assert.deepStrictEqual(everyFlip(bytes).filter(under), [])
  })

  it("does not open if assembled from two seals of the same key to the same context", () => {
    const [one, other] = [format1.seal(key, context), format1.seal(key, context)]
    const mixed = (head: Row, box: Row) => Buffer.concat([head.sealed.subarray(0, 34), box.sealed.subarray(34)])
    assert.isTrue(format1.opens({ ...one, sealed: mixed(one, one) }, context))
    assert.isFalse(format1.opens({ ...one, sealed: other.sealed }, context))
    assert.isFalse(format1.opens({ ...one, sealed: mixed(one, other) }, context))
    assert.isFalse(format1.opens({ ...one, sealed: mixed(other, one) }, context))
  })

  it.for([
    ["version 0", [0, 1]],
    ["version 2", [2, 1]],
    ["suite 0", [1, 0]],
    ["suite 2", [1, 2]],
    ["nothing after the version", [1]],
    ["nothing at all", []]
  ] as const)("fails with UnsupportedFormat, not AuthenticationFailed, if it has %s", ([, head]) => {
    const row = format1.seal(key, context)
    const sealed = Buffer.concat([Buffer.from(head), row.sealed.subarray(2, head.length < 2 ? 2 : undefined)])
    const opened = open(kek, { ...row, sealed }, context)
    assert.strictEqual(Result.isFailure(opened) && opened.failure._tag, "UnsupportedFormat")
  })
})

/** Plain AES-256-GCM, without anything that the format adds. */
const openBox = (dataKey: Uint8Array, box: Uint8Array, aad: Uint8Array) => {
  const decipher = createDecipheriv("aes-256-gcm", dataKey, box.subarray(0, 12), { authTagLength: 16 })
  decipher.setAAD(aad)
  decipher.setAuthTag(box.subarray(-16))
  decipher.update(box.subarray(12, -16))
  try {
    decipher.final()
    return true
  } catch {
    return false
  }
}

describe("the key commitment (SECURITY.md, Sealing format 1)", () => {
  it("refuses a ciphertext that AES-GCM accepts but that commits to another key", () => {
    const random = Buffer.alloc(56, "random")
    const given = { kek: bytes, kek_id: kek.kek_id, random, context: context.toString(), plaintext: Buffer.from(key) }
    assert.isTrue(format1.opens(sealByTheBook(given), context))

    const commitment = Buffer.alloc(32, "a commitment to another key")
    const forged = sealByTheBook(given, { commitment })
    const dataKey = hkdf64(random.subarray(0, 32), Buffer.from("byok/v1/\u0001\u0001")).subarray(0, 32)
    const aad = Buffer.concat([Buffer.from("data"), Buffer.of(1, 1), context, commitment])
    assert.isTrue(openBox(dataKey, forged.sealed.subarray(34), aad))
    assert.isFalse(format1.opens(forged, context))
  })
})

describe("the tampering checks above (control)", () => {
  const nonce = Buffer.alloc(12)
  const short = (box: Uint8Array) => box.length < 28

  it("detect a cipher that authenticates no context, and so opens with another context or row", () => {
    const found = accepted({
      seal: (text) => ({ wrapped_dek: nonce, sealed: gcm(bytes, nonce, Buffer.from(text), Buffer.alloc(0)) }),
      opens: ({ sealed }) => !short(sealed) && openBox(bytes, sealed, Buffer.alloc(0))
    })
    assert.deepStrictEqual(found.flips, { sealed: 0, wrapped_dek: nonce.length * 8, context: context.length * 8 })
    assert.isAbove(found.swaps, 0)
  })

  it("detect a cipher that checks no tag, and so accepts every flipped bit", () => {
    const found = accepted({
      seal: (text, to) => ({ wrapped_dek: nonce, sealed: gcm(bytes, nonce, Buffer.from(text), to) }),
      opens: ({ sealed }) => !short(sealed)
    })
    assert.strictEqual(found.flips.sealed, (key.length + 28) * 8)
    assert.strictEqual(found.extensions.sealed, 4 * 64)
  })
})
