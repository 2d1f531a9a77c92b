import { createSecretKey, hkdfSync } from "node:crypto"
import { Arbitrary, Effect, Redacted, Result } from "effect"
import { vi } from "vitest"
import { decrypt, encrypt } from "../../src/runtime/AesGcm.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import { generateKeyring, makeKek, parseKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { matchesKey, openKey, resealKey } from "../../src/service/credentials/StoredKey.ts"
import { sealingContext } from "../support/memory/arbitraries.ts"
import { cipherOn } from "../support/memory/inMemory.ts"
import { open, rewrap, seal } from "../support/keys/sealing.ts"
import { gcm, hkdf64, sealByTheBook } from "./SealByTheBook.ts"
import { assert, describe, it } from "../support/it.ts"

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")

/** The contents, in hexadecimal, of all buffers wiped while a program runs, except those of zeros only. */
const wipedBy = (program: () => unknown): ReadonlyArray<string> => {
  const seen: Array<string> = []
  const spies = [Buffer.prototype, Uint8Array.prototype].map((prototype: Uint8Array) => {
    const fill = Reflect.get(prototype, "fill")
    const watched = function (this: Uint8Array, value: number, start?: number, end?: number) {
      if (value === 0) seen.push(hex(this.subarray(start, end)))
      return fill.call(this, value, start, end)
    }
    return vi.spyOn(prototype, "fill").mockImplementation(watched)
  })
  try {
    program()
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
  return seen.filter((bytes) => /[^0]/.test(bytes))
}

const kekBytes = Buffer.from("fake-key-encryption-key-of-32-by")
const kek = () => makeKek("kek-1", Buffer.from(kekBytes))
const dek = Buffer.from("a-fake-data-key-of-exactly-32-by")
const plaintext = Buffer.from("fake-provider-key")
const context = "[]"
const random = Buffer.concat([dek, Buffer.alloc(24, "N")])
const okm = hkdf64(dek, Buffer.from("byok/v1/\u0001\u0001"))
const ingredients = { kek: kekBytes, kek_id: "kek-1", random, context, plaintext }
const sealed = sealByTheBook(ingredients)
const wrapAad = Buffer.from(`wrap\u0001\u0001\0\0\0\u0005kek-1${context}`)

describe("key material in buffers (SECURITY.md, Out of scope)", () => {
  it("is wiped if it is decrypted but fails authentication", () => {
    const key = createSecretKey(kekBytes)
    const box = encrypt(key, Buffer.alloc(12), plaintext, Buffer.alloc(0))
    const wiped = wipedBy(() => assert.isUndefined(decrypt(key, box, Buffer.from("other"))))
    assert.deepStrictEqual(wiped, [hex(plaintext)])
    assert.isEmpty(wipedBy(() => assert.isDefined(decrypt(key, box, Buffer.alloc(0)))))
  })

  it("is wiped after building a key-encryption key and its check value", () => {
    const checkKey = new Uint8Array(hkdfSync("sha256", kekBytes, "", "byok/kcv", 32))
    const wiped = wipedBy(() => makeKek("kek-1", Buffer.from(kekBytes)))
    assert.includeMembers([...wiped], [hex(kekBytes), hex(checkKey)])
  })

  it("is wiped after generating a keyring", () => {
    let made = ""
    const wiped = wipedBy(() => {
      made = generateKeyring(new Date())
    })
    assert.include(wiped, Buffer.from(made.split(":")[1] ?? "", "base64").toString("hex"))
  })

  it.for([
    ["an accepted key", kekBytes],
    ["a key that is too long", Buffer.concat([kekBytes, Buffer.from("!")])],
    ["a key whose bytes are all the same", Buffer.alloc(32, "=")]
  ] as const)("is wiped after parsing %s in a keyring", ([, bytes]) => {
    const wiped = wipedBy(() => parseKeyring(`kek-1:${bytes.toString("base64")}`))
    assert.include(wiped, hex(bytes))
  })

  it("is wiped after sealing: data key and derived keys", () => {
    const wiped = wipedBy(() => seal(kek(), plaintext, Buffer.from(context), (target) => void random.copy(target)))
    assert.includeMembers([...wiped], [hex(dek), hex(okm)])
  })

  it("is wiped after opening: data key and derived keys", () => {
    const wiped = wipedBy(() => {
      assert.deepStrictEqual(open(kek(), sealed, Buffer.from(context)), Result.succeed(plaintext))
    })
    assert.includeMembers([...wiped], [hex(dek), hex(okm)])
    assert.notInclude(wiped, hex(plaintext))
  })

  it("is wiped if opening fails: data key and derived keys", () => {
    const commitment = Buffer.alloc(32, "C")
    const claimed = sealByTheBook(ingredients, { commitment })
    const wiped = wipedBy(() => assert.isTrue(Result.isFailure(open(kek(), claimed, Buffer.from(context)))))
    assert.includeMembers([...wiped], [hex(dek), hex(okm)])
  })

  it.for([
    ["a data key", 32],
    ["a data key of 31 bytes, which is refused", 31]
  ] as const)("is wiped after rewrapping %s", ([, length]) => {
    const wrapped_dek = gcm(kekBytes, Buffer.alloc(12), dek.subarray(0, length), wrapAad)
    const wiped = wipedBy(() => {
      const result = rewrap(
        kek(),
        makeKek("kek-2", Buffer.alloc(32, "ab")),
        { ...sealed, wrapped_dek },
        Buffer.from(context)
      )
      assert.strictEqual(Result.isSuccess(result), length === 32)
    })
    assert.include(wiped, hex(dek.subarray(0, length)))
  })

  it("is wiped after sealing, opening, reading, comparing and resealing a provider key (L6, L8)", () => {
    const cipher = Effect.runSync(Effect.provide(Cipher, cipherOn(`kek-1:${kekBytes.toString("base64")}`)))
    const [bound] = Effect.runSync(Arbitrary.sampleEffect(sealingContext, { count: 1, seed: 1 }))
    if (bound === undefined) return assert.fail("no context")
    const key = Redacted.make(plaintext.toString())
    const held = Effect.runSync(cipher.seal(key, contextOf(bound)))
    const changed = { ...bound, disabled: !bound.disabled }
    const given = Redacted.make("another-provider-key")
    assert.include(
      wipedBy(() => Effect.runSync(cipher.seal(key, contextOf(bound)))),
      hex(plaintext)
    )
    assert.include(
      wipedBy(() => openKey(cipher, held, contextOf(bound))),
      hex(plaintext)
    )
    const wipedByReading = (use: (key: Buffer) => string) =>
      wipedBy(() => Result.try(() => cipher.read(held, contextOf(bound), use)))
    assert.include(wipedByReading(String), hex(plaintext))
    assert.include(
      wipedByReading(() => assert.fail("a defect")),
      hex(plaintext)
    )
    const compared = wipedBy(() => matchesKey(cipher, held, contextOf(bound), given))
    assert.includeMembers([...compared], [hex(plaintext), hex(Buffer.from(Redacted.value(given)))])
    const resealed = wipedBy(() => Effect.runSync(resealKey(cipher, held, contextOf(bound), contextOf(changed))))
    assert.strictEqual(resealed.filter((bytes) => bytes === hex(plaintext)).length, 3, "opened, copied and sealed")
  })
})
