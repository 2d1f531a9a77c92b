import { Schema } from "effect"
import { hasMoreValuesThan } from "../../src/domain/hasMoreValuesThan.ts"
import { assert, describe, it } from "../support/it.ts"

/** The values in parsed JSON, itself included; an empty list or object counts as two. */
const count = (value: unknown): number => {
  if (typeof value !== "object" || value === null) return 1
  const values: ReadonlyArray<unknown> = Object.values(value)
  return values.reduce((sum: number, one) => sum + count(one), values.length === 0 ? 2 : 1)
}

/** The least `max` at which a text has not more. */
const countedIn = (text: string) => {
  let max = 0
  while (hasMoreValuesThan(max, text)) max += 1
  return max
}

describe("counting the values of JSON (F6)", () => {
  it.prop("counts each value once, and an empty list or object twice", [Schema.Json], ([value]) => {
    const parsed = JSON.parse(JSON.stringify(value)) as unknown
    for (const text of [JSON.stringify(parsed), JSON.stringify(parsed, null, 2)])
      assert.strictEqual(countedIn(text), count(parsed))
  })

  it("passes over strings, with escaped quotes and backslashes in them", () => {
    for (const string of [",[{,[{", '\\",[', "\\\\", '\\\\\\",'])
      assert.strictEqual(countedIn(`["${string}",0]`), 3, string)
  })

  it("ends with a text that is no JSON", () => {
    assert.strictEqual(countedIn('["'), 2)
    assert.strictEqual(countedIn('"\\'), 1)
    assert.isTrue(hasMoreValuesThan(1000, "[".repeat(1000)))
  })
})
