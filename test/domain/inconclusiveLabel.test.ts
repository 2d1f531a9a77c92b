import { assert, describe, it } from "@effect/vitest"
import { Arbitrary } from "effect"
import { inconclusiveLabel } from "../../src/domain/inconclusiveLabel.ts"
import { labelOf } from "../../src/domain/Label.ts"
import { elementOf, text } from "../support/memory/arbitraries.ts"

const blanks = elementOf(["", " ", "\n", "\t\r\n  ", "    "])
const json = Arbitrary.map(
  Arbitrary.all({
    secret: text(0, 40),
    before: blanks,
    after: blanks,
    spaces: elementOf([0, 2]),
    shape: elementOf([0, 1, 2])
  }),
  ({ after, before, secret, shape, spaces }) =>
    before + JSON.stringify([{ secret }, [secret, 1], secret][shape], null, spaces) + after
)

describe("an inconclusive label (L15)", () => {
  it.prop("is that of any JSON with text in it, whatever is around it", [json], ([key]) =>
    inconclusiveLabel.test(labelOf(key))
  )

  it.prop("is that of any key that is hidden whole", [text(1, 16)], ([key]) => inconclusiveLabel.test(labelOf(key)))

  it.for(["sk-...AbCd", "***...q", "ab...stu", "{ab...cdef", "abc...def}"])("is not %s (control)", (label) => {
    assert.isFalse(inconclusiveLabel.test(label))
  })
})
