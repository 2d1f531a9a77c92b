import { createSecretKey } from "node:crypto"
import { decrypt, encrypt, overhead } from "../../src/runtime/AesGcm.ts"
import vectors from "../vectors/aes-256-gcm.json" with { type: "json" }
import { assert, describe, it } from "../support/it.ts"

const bytesOf = (hex: string) => Buffer.from(hex, "hex")
const read = ({ aad, ct, iv, key, msg, tag }: (typeof vectors)[number]) => ({
  key: createSecretKey(bytesOf(key)),
  nonce: bytesOf(iv),
  plaintext: bytesOf(msg),
  aad: bytesOf(aad),
  box: bytesOf(iv + ct + tag)
})
const valid = vectors.filter(({ result }) => result === "valid")
const invalid = vectors.filter(({ result }) => result === "invalid")

describe("AES-256-GCM on Wycheproof's test vectors (T3; SECURITY.md, Sealing format 1)", () => {
  it("has 21 valid and 11 invalid vectors", () => {
    assert.deepStrictEqual([valid.length, invalid.length], [21, 11])
  })

  it.for(valid)("encrypts to the ciphertext of valid vector $tcId, and decrypts it", (vector) => {
    const { aad, box, key, nonce, plaintext } = read(vector)
    assert.deepStrictEqual(encrypt(key, nonce, plaintext, aad), box)
    assert.deepStrictEqual(decrypt(key, box, aad), plaintext)
  })

  it.for(invalid)("refuses to decrypt invalid vector $tcId: $comment", (vector) => {
    const { aad, box, key } = read(vector)
    assert.isUndefined(decrypt(key, box, aad))
  })

  it("refuses to decrypt a ciphertext shorter than its nonce and tag", () => {
    const key = createSecretKey(Buffer.alloc(32, "k"))
    const box = encrypt(key, Buffer.alloc(12), Buffer.alloc(0), Buffer.alloc(0))
    assert.strictEqual(box.length, overhead)
    for (let length = 0; length < overhead; length++) {
      assert.isUndefined(decrypt(key, box.subarray(0, length), Buffer.alloc(0)))
    }
  })
})
