import { Result, Schema } from "effect"
import { IdempotencyKey } from "../../src/domain/Identifiers.ts"
import { issuesOf } from "../../src/domain/Issue.ts"
import { anyString } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const decode = Schema.decodeUnknownResult(IdempotencyKey)

/** Whether a key is accepted. Checks that a refusal states the rule. */
const accepted = (key: unknown) => {
  const decoded = decode(key)
  if (Result.isSuccess(decoded)) return decoded.success === key
  const message = "must be 1 to 255 visible ASCII characters, sent once"
  assert.deepStrictEqual(issuesOf(decoded.failure.issue), [{ path: [], message }])
  return false
}

describe("an idempotency key (SECURITY.md, Idempotency records)", () => {
  it.prop("is accepted, unchanged, only if every character is visible ASCII", [anyString], ([key]) => {
    const visible = Array.from(key).every((character) => character > " " && character < "\u007f")
    assert.strictEqual(accepted(key), key !== "" && visible)
  })

  it.for([["!"], ["~"], ["k".repeat(255)]])("is accepted if it is %j", ([key]) => {
    assert.isTrue(accepted(key))
  })

  it.for([["k".repeat(256)], [""], [" "], ["k, k"], ["\u007f"], ["k\n"], [undefined], [1]])(
    "is refused if it is %j",
    ([key]) => {
      assert.isFalse(accepted(key))
    }
  )
})
