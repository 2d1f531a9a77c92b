import { NodeCrypto } from "@effect/platform-node"
import { Effect, Redacted } from "effect"
import { formatApiKey, hashApiKey, hasWrongChecksum, makeApiKey } from "../../src/runtime/ApiKey.ts"
import { anyString, bytes, integer } from "../support/memory/arbitraries.ts"
import { faultOf, fromBase62, sha256 } from "../support/keys/issuedKey.ts"
import { assert, describe, it } from "../support/it.ts"

const kinds = [
  ["mk", "management"],
  ["ak", "ordinary"],
  ["ak", "viewer"]
] as const

describe.for(kinds)("an API key that begins with byok_%s_, for the role %s (D41)", ([kind, role]) => {
  it.prop("has a valid format and encodes its 32 random bytes", [bytes(32, 32)], ([random]) => {
    const key = formatApiKey(random, role)
    assert.isUndefined(faultOf(key, kind))
    assert.strictEqual(fromBase62(key.slice(8, 51)), BigInt(`0x${random.toString("hex")}`))
  })

  it.for([0, 1, 0x7f, 0xff])("has a valid format if all its 32 bytes are %i", (byte) => {
    assert.isUndefined(faultOf(formatApiKey(Buffer.alloc(32, byte), role), kind))
  })

  it.effect("differs on each call of makeApiKey, which also returns its hash (D24)", () =>
    Effect.gen(function* () {
      const made = yield* Effect.forEach(Array.from({ length: 20 }), () => makeApiKey(role))
      assert.strictEqual(new Set(made.map(({ hash }) => hash)).size, 20)
      for (const { hash, key } of made) {
        assert.isUndefined(faultOf(Redacted.value(key), kind))
        assert.strictEqual(hash, sha256(Redacted.value(key)))
      }
    }).pipe(Effect.provide(NodeCrypto.layerSecureRandom))
  )
})

describe("the checksum of an API key (D41, F9)", () => {
  it.prop(
    "is right for every issued key, and wrong after any character after the prefix changes",
    [bytes(32, 32), integer(8, 56)],
    ([random, at]) => {
      const key = formatApiKey(random, "management")
      const changed = key.slice(0, at) + (key[at] === "0" ? "1" : "0") + key.slice(at + 1)
      assert.isFalse(hasWrongChecksum(key))
      assert.isTrue(hasWrongChecksum(changed))
    }
  )

  it.prop("is not required of keys in another format, which may have been imported", [anyString], ([token]) => {
    assert.isFalse(hasWrongChecksum(token))
    assert.isFalse(hasWrongChecksum(`byok_mk_${token}!`))
  })
})

describe("the hash of an API key", () => {
  it.prop("is the SHA-256 of its whole text (D24)", [anyString], ([key]) => {
    assert.strictEqual(hashApiKey(Redacted.make(key)), sha256(key))
  })
})
