import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import * as SecureRandomLive from "../../src/crypto/SecureRandomLive.ts"

describe("random bytes for ids and API keys (D34, D41)", () => {
  it.effect("have the requested length and are never handed out twice, over many blocks", () =>
    Effect.gen(function* () {
      const { randomBytes } = yield* SecureRandom.SecureRandom
      const drawn = yield* Effect.forEach(Array.from({ length: 3000 }), (_, n) => randomBytes(16 + (n % 17)))
      for (const [n, bytes] of drawn.entries()) assert.lengthOf(bytes, 16 + (n % 17))
      assert.strictEqual(new Set(drawn.map((bytes) => Buffer.from(bytes).toString("hex", 0, 16))).size, drawn.length)
      for (let byte = 0; byte < 16; byte++) assert.isAbove(new Set(drawn.map((bytes) => bytes[byte])).size, 200)
    }).pipe(Effect.provide(SecureRandomLive.layer))
  )
})
