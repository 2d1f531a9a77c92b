import { assert, describe, it } from "@effect/vitest"
import { isKekId, kekIdForm } from "../../src/domain/KekId.ts"

describe("the id of a key-encryption key (SECURITY.md, Keyring)", () => {
  it("has the characters and the length that its description gives, and no others", () => {
    const [, least = "", most = "", told = ""] = /^(\d+) to (\d+) characters of (.*)$/.exec(kekIdForm) ?? []
    const inRange = (text: string) => told.split(" ").some(([low = "", , high = low]) => low <= text && text <= high)
    const characters = Array.from({ length: 0x3000 }, (_, code) => String.fromCharCode(code))
    assert.deepStrictEqual(characters.filter(isKekId), characters.filter(inRange))
    assert.deepStrictEqual(
      [0, 1, 2, 63, 64, 65].filter((length) => isKekId("k".repeat(length))),
      [0, 1, 2, 63, 64, 65].filter((length) => length >= Number(least) && length <= Number(most))
    )
    assert.isTrue(isKekId("AZaz09._-"))
  })

  it.for(["", "k k", "k\n", "\nk", "k/1", "k:1", "ké", undefined, 1])("cannot be %j", (given) => {
    assert.isFalse(isKekId(given))
  })
})
