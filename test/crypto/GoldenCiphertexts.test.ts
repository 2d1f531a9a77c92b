import { Effect, Redacted, Result, Schema, Struct } from "effect"
import { makeKek } from "../../src/crypto/keyring/Keyring.ts"
import { Credential } from "../../src/domain/Credential.ts"
import { AccountId } from "../../src/domain/Identifiers.ts"
import { boundNames, contextOf } from "../../src/domain/SealedKey.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { openKey } from "../../src/service/credentials/StoredKey.ts"
import { defaults } from "../support/http/Bodies.ts"
import { cipherOn } from "../support/memory/inMemory.ts"
import { seal } from "../support/keys/sealing.ts"
import vectors from "../vectors/sealing-format-1.json" with { type: "json" }
import { assert, describe, it } from "../support/it.ts"

const Context = Schema.Struct({ ...Struct.pick(Credential.fields, boundNames), account_id: AccountId })
/** The context of a vector; members that were added since have their defaults. */
const boundOf = (credential: object) => Schema.decodeUnknownSync(Context)({ ...defaults, ...credential })
const bytesOf = (hex: string) => Buffer.from(hex, "hex")

describe("golden ciphertexts of sealing format 1 (SECURITY.md, Sealing format 1)", () => {
  it.for(vectors)(
    "$name: sealing with the same random bytes reproduces the ciphertext",
    ({ context, kek, kek_id, key, random, ...vector }) => {
      const made = seal(makeKek(kek_id, bytesOf(kek)), Buffer.from(key), Buffer.from(context), (target) => {
        bytesOf(random).copy(target)
      })
      assert.strictEqual(Buffer.from(made.wrapped_dek).toString("hex"), vector.wrapped_dek)
      assert.strictEqual(Buffer.from(made.sealed).toString("hex"), vector.sealed)
    }
  )

  it.for(vectors)(
    "$name: its credential still encodes to the context that its key was sealed to",
    ({ context, credential }) => {
      assert.strictEqual(contextOf(boundOf(credential)), context)
    }
  )

  it.effect.each(vectors)(
    "$name: opens to the provider key that was sealed",
    function* ({ credential, kek, kek_id, key, sealed, wrapped_dek }) {
      const cipher = yield* Effect.provide(Cipher, cipherOn(`${kek_id}:${bytesOf(kek).toString("base64")}`))
      const row = { kek_id, wrapped_dek: bytesOf(wrapped_dek), sealed: bytesOf(sealed) }
      const opened = openKey(cipher, row, contextOf(boundOf(credential)))
      assert.strictEqual(Redacted.value(Result.getOrThrow(opened)), key)
    }
  )
})
