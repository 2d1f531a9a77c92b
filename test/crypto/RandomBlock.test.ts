import { assert, describe, it } from "@effect/vitest"
import { RandomBlock } from "../../src/crypto/SecureRandomLive.ts"

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
    const block = new RandomBlock(64)
    for (const length of [1, 12, 51, 64, 64]) {
      const seen = new Set(Array.from({ length: 200 }, () => draw(block, length).slice(-2)))
      assert.isAbove(seen.size, 50)
    }
  })
})
