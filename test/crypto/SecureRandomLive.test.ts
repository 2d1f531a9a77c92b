import { Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import * as SecureRandomLive from "../../src/crypto/SecureRandomLive.ts"
import { RandomBlock } from "../../src/crypto/SecureRandomLive.ts"
import { assert, describe, it } from "../support/it.ts"

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

const draw = (block: RandomBlock, length: number) => {
  const target = Buffer.alloc(length)
  block.fill(target)
  return target.toString("hex")
}

describe("random bytes drawn in blocks (SECURITY.md, Sealing format 1)", () => {
  it("are never handed out twice, over many blocks and any lengths", () => {
    const block = new RandomBlock(100)
    const drawn = Array.from({ length: 5000 }, (_, index) => draw(block, 12 + (index % 33)))
    const windows = drawn.flatMap((hex) =>
      Array.from({ length: hex.length / 2 - 11 }, (_, byte) => hex.slice(2 * byte, 2 * byte + 24))
    )
    assert.strictEqual(new Set(windows).size, windows.length)
  })

  it("fill the whole target, up to a whole block", () => {
    for (const length of [1, 12, 51, 64]) {
      const block = new RandomBlock(64)
      assert.isAbove(new Set(Array.from({ length: 200 }, () => draw(block, length).slice(-2))).size, 50)
    }
  })
})
