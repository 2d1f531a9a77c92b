import { assert, describe, it } from "@effect/vitest"
import { Tracer } from "effect"
import { makeSampler } from "../../src/tracing/makeSampler.ts"
import { newSpanId, newTraceId } from "../../src/tracing/traceIds.ts"

const remote = (sampled: boolean) => Tracer.externalSpan({ traceId: "a".repeat(32), spanId: "b".repeat(16), sampled })

describe("sampling by a ratio", () => {
  const ids = Array.from({ length: 20_000 }, newTraceId)

  it.each([0.01, 0.25, 0.5, 0.9])("of %d records that share of traces", (ratio) => {
    const sampler = makeSampler({ ratio, parentDecides: true })
    const share = ids.filter((id) => sampler(id, undefined)).length / ids.length
    // Five standard deviations.
    assert.closeTo(share, ratio, 5 * Math.sqrt((ratio * (1 - ratio)) / ids.length))
  })

  it("records with a larger ratio whatever a smaller one does, by the end of the id alone", () => {
    const [some, more] = [0.2, 0.4].map((ratio) => makeSampler({ ratio, parentDecides: false }))
    for (const id of ids) {
      if (some?.(id, undefined) === true) assert.isTrue(more?.(id, remote(false)))
      assert.strictEqual(some?.(id, undefined), some?.(`${"0".repeat(18)}${id.slice(18)}`, undefined))
    }
  })

  it("records all or nothing at the ends", () => {
    for (const id of [...ids, "0".repeat(32), "f".repeat(32)]) {
      assert.isTrue(makeSampler({ ratio: 1, parentDecides: false })(id, remote(false)))
      assert.isFalse(makeSampler({ ratio: 0, parentDecides: false })(id, remote(true)))
    }
  })

  it("leaves the decision to a parent, if it may decide", () => {
    for (const ratio of [0, 0.5, 1]) {
      for (const sampled of [true, false]) {
        assert.strictEqual(makeSampler({ ratio, parentDecides: true })("f".repeat(32), remote(sampled)), sampled)
      }
    }
  })
})

it("ids are as long as they should be, and all different", () => {
  const ids = Array.from({ length: 1000 }, () => [newTraceId(), newSpanId()] as const)
  for (const [trace, span] of ids) {
    assert.match(trace, /^[0-9a-f]{32}$/)
    assert.match(span, /^[0-9a-f]{16}$/)
  }
  assert.strictEqual(new Set(ids.flat()).size, 2000)
})
