import { Arbitrary } from "effect"
import {
  isFailing,
  type LastUse,
  mergeUses,
  useFromLease,
  neverUsed,
  useFromOutcome
} from "../../../src/domain/routing/LastUse.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"

const outcomes: ReadonlyArray<Outcome> = [
  { _tag: "Succeeded" },
  { _tag: "RateLimited", retry_after: null },
  { _tag: "QuotaExhausted" },
  { _tag: "Rejected" },
  { _tag: "Forbidden" },
  { _tag: "UpstreamFailed" },
  { _tag: "RequestRefused" },
  { _tag: "Abandoned" }
]

const time = integer(0, 5)
const seen: Arbitrary.Arbitrary<LastUse> = oneOf(
  Arbitrary.map(time, useFromLease),
  Arbitrary.flatMap(elementOf(outcomes), (outcome) =>
    Arbitrary.map(Arbitrary.all({ at: time, version: integer(1, 2) }), ({ at, version }) =>
      useFromOutcome(outcome, at, version)
    )
  )
)

const latest = (times: ReadonlyArray<number | null>) => {
  const known = times.filter((at) => at !== null)
  return known.length === 0 ? null : Math.max(...known)
}

describe("the last use of a credential", () => {
  it.each(outcomes.map((outcome) => [outcome._tag, outcome] as const))(
    "records the time, cause and key version of the outcome %s",
    (tag, outcome) => {
      const expected: Readonly<Record<string, Partial<LastUse>>> = {
        Succeeded: { last_succeeded_at: 7 },
        RateLimited: { last_failed_at: 7, last_failure: "rate_limited" },
        QuotaExhausted: { last_failed_at: 7, last_failure: "quota_exhausted" },
        Rejected: { last_failed_at: 7, last_failure: "rejected" },
        Forbidden: { last_failed_at: 7, last_failure: "forbidden" },
        UpstreamFailed: { last_failed_at: 7, last_failure: "upstream_failed" }
      }
      assert.deepStrictEqual(useFromOutcome(outcome, 7, 2), {
        ...neverUsed,
        ...expected[tag],
        last_failed_version: expected[tag]?.last_failed_at === undefined ? null : 2
      })
    }
  )

  it.prop(
    "keeps the latest of each time and the cause of the last failure, in any order of reports",
    [Arbitrary.array(seen, { maxLength: 8 })],
    ([all]) => {
      const last = all.reduce(mergeUses, neverUsed)
      const failed = latest(all.map(({ last_failed_at }) => last_failed_at))
      assert.strictEqual(last.last_leased_at, latest(all.map(({ last_leased_at }) => last_leased_at)))
      assert.strictEqual(last.last_succeeded_at, latest(all.map(({ last_succeeded_at }) => last_succeeded_at)))
      assert.strictEqual(last.last_failed_at, failed)
      const first = all.find(({ last_failed_at }) => last_failed_at !== null && last_failed_at === failed)
      assert.strictEqual(last.last_failure, first?.last_failure ?? null)
      assert.strictEqual(last.last_failed_version, first?.last_failed_version ?? null)
      assert.deepStrictEqual(mergeUses(last, last), last)
    }
  )

  it.each(outcomes.map((outcome) => [outcome._tag, outcome] as const))(
    "counts as failing after %s if the upstream refused the key, until the key is replaced or succeeds",
    (tag, outcome) => {
      const failed = useFromOutcome(outcome, 7, 2)
      const succeeded = (at: number) => mergeUses(failed, useFromOutcome({ _tag: "Succeeded" }, at, 2))
      const isRefusal = ["Rejected", "Forbidden", "QuotaExhausted"].includes(tag)
      assert.deepStrictEqual(
        [isFailing(failed, 2), isFailing(succeeded(6), 2), isFailing(succeeded(7), 2), isFailing(failed, 3)],
        [isRefusal, isRefusal, false, false]
      )
    }
  )
})
