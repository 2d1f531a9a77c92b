import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeKeyringEncryption } from "../../src/crypto/keyring/KeyEncryptionKeyringLive.ts"
import { makeUnion } from "../../src/crypto/KeyEncryption.ts"
import { parseKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { ringOf } from "../support/keys/keyrings.ts"

const storeOf = (...ids: ReadonlyArray<string>) => {
  const ring = parseKeyring(ringOf(...ids))
  return makeKeyringEncryption({ current: () => ring })
}
const [dek, aad] = [Buffer.alloc(32, "D"), Buffer.from("the AAD")]

describe("the keys of two stores (SECURITY.md, Keys on a PKCS#11 token)", () => {
  const make = () => makeUnion(storeOf("new", "next"), storeOf("old", "older"))

  it("are all available, and the first key of the first store is primary", () => {
    const both = make()
    assert.strictEqual(both.primary(), "new")
    assert.deepStrictEqual(
      both.keks().map(({ kek_id }) => kek_id),
      ["new", "next", "old", "older"]
    )
  })

  it.effect.each(["new", "next", "old", "older"])("wrap and unwrap in the store that holds them: %s", (kek_id) =>
    Effect.gen(function* () {
      const both = make()
      const wrapped = yield* both.wrap(kek_id, dek, aad)
      assert.deepStrictEqual(yield* storeOf(kek_id).unwrap(kek_id, wrapped, aad), dek)
      assert.deepStrictEqual(yield* both.unwrap(kek_id, yield* storeOf(kek_id).wrap(kek_id, dek, aad), aad), dek)
    })
  )

  it.effect("an id that neither store has is unknown", () =>
    Effect.gen(function* () {
      const both = make()
      assert.strictEqual((yield* Effect.flip(both.wrap("lost", dek, aad)))._tag, "UnknownKeyId")
      assert.strictEqual((yield* Effect.flip(both.unwrap("lost", Buffer.alloc(60), aad)))._tag, "UnknownKeyId")
      assert.deepInclude(yield* Effect.flip(both.unwrap("lost", Buffer.alloc(60), aad)), { kek_id: "lost" })
    })
  )
})
