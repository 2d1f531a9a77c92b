import { hkdfSync } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import vectors from "../vectors/hkdf-sha-256.json" with { type: "json" }

const bytesOf = (hex: string) => Buffer.from(hex, "hex")
const derive = ({ ikm, info, salt, size }: (typeof vectors)[number]) =>
  Buffer.from(hkdfSync("sha256", bytesOf(ikm), bytesOf(salt), bytesOf(info), size))
const valid = vectors.filter(({ result }) => result === "valid")
const invalid = vectors.filter(({ result }) => result === "invalid")

describe("the HKDF-SHA-256 of this platform agrees with Wycheproof (SECURITY.md, Sealing format 1)", () => {
  it("on 38 valid and 1 invalid vectors", () => {
    assert.deepStrictEqual([valid.length, invalid.length], [38, 1])
  })

  it.for(valid)("vector $tcId", (vector) => {
    assert.strictEqual(derive(vector).toString("hex"), vector.okm)
  })

  it.for(invalid)("vector $tcId is refused: $comment", (vector) => {
    assert.throws(() => derive(vector))
  })
})
