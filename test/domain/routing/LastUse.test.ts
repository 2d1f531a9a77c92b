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
  { _tag: "NotServed" },
  { _tag: "RequestRefused", answer: { status: 400, code: "context_length_exceeded" } },
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
  const tagged = (tags: ReadonlyArray<string>) =>
    outcomes.filter(({ _tag }) => tags.includes(_tag)).map((outcome) => [outcome._tag, outcome] as const)
  const causes: Readonly<Record<string, LastUse["last_failure"]>> = {
    RateLimited: "rate_limited",
    QuotaExhausted: "quota_exhausted",
    Rejected: "rejected",
    Forbidden: "forbidden",
    UpstreamFailed: "upstream_failed"
  }

  it.each(tagged(Object.keys(causes)))("records the time, cause and key version of the failure %s", (tag, outcome) => {
    const failed = { last_failed_at: 7, last_failure: causes[tag], last_failed_version: 2 }
    assert.deepStrictEqual<unknown>(useFromOutcome(outcome, 7, 2), { ...neverUsed, ...failed })
  })

  it("records the time of a success", () => {
    assert.deepStrictEqual(useFromOutcome({ _tag: "Succeeded" }, 7, 2), { ...neverUsed, last_succeeded_at: 7 })
  })

  it.each([
    [undefined, { last_refused_status: null, last_refused_code: null }],
    [
      { status: 422, code: "a" },
      { last_refused_status: 422, last_refused_code: "a" }
    ]
  ])("records the time, status and code of a refused request: %o", (answer, shown) => {
    const outcome: Outcome = answer === undefined ? { _tag: "RequestRefused" } : { _tag: "RequestRefused", answer }
    const row = { last_refused_at: 7, refused_since: 7, refused_in_a_row: 1 }
    assert.deepStrictEqual(useFromOutcome(outcome, 7, 2), { ...neverUsed, ...row, ...shown })
  })

  it.each(tagged(["NotServed", "Abandoned"]))("records nothing of the outcome %s", (_tag, outcome) => {
    assert.deepStrictEqual(useFromOutcome(outcome, 7, 2), neverUsed)
  })

  it.prop(
    "keeps the latest of each time and the cause of the last failure, whatever the order of reports",
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

  const refusal: Outcome = { _tag: "RequestRefused" }
  /** Uses from refused requests and successes at the times 0, 1, 2 and so on. */
  const usesOf = (succeeded: ReadonlyArray<boolean>) =>
    succeeded.map((isSuccess, at) => useFromOutcome(isSuccess ? { _tag: "Succeeded" } : refusal, at, 1))
  const history = Arbitrary.array(elementOf([false, false, false, false, true]), { maxLength: 30 })
  const rowOf = (succeeded: ReadonlyArray<boolean>) => succeeded.length - 1 - succeeded.lastIndexOf(true)

  it.prop("counts the requests refused in a row since the last success, and fails from ten on", [history], ([all]) => {
    const { refused_in_a_row, refused_since } = usesOf(all).reduce(mergeUses, neverUsed)
    assert.strictEqual(refused_in_a_row, rowOf(all))
    assert.strictEqual(refused_since, rowOf(all) === 0 ? null : all.length - rowOf(all))
    assert.strictEqual(isFailing(usesOf(all).reduce(mergeUses, neverUsed), 1), rowOf(all) >= 10)
  })

  it.prop(
    "never counts more refused requests than there were, and at least one, if reports repeat or come in another order",
    [Arbitrary.array(integer(0, 9), { maxLength: 20 }), integer(-1, 9)],
    ([times, success]) => {
      const refused = times.map((at) => useFromOutcome(refusal, at, 1))
      const uses = success < 0 ? refused : [...refused, useFromOutcome({ _tag: "Succeeded" }, success, 1)]
      const { refused_in_a_row } = uses.reduce(mergeUses, neverUsed)
      const isRefused = times.some((at) => at > success)
      assert.isAtMost(refused_in_a_row, isRefused ? new Set(times).size : 0)
      assert.isAtLeast(refused_in_a_row, isRefused ? 1 : 0)
    }
  )

  it("counts at most a thousand refused requests", () => {
    const counted = usesOf(Array.from({ length: 1001 }, () => false)).reduce(mergeUses, neverUsed)
    assert.strictEqual(counted.refused_in_a_row, 1000)
  })

  /** Whether an outcome counts as failing: at once, after an earlier and a later success, and with another key. */
  const failingAfter = (outcome: Outcome) => {
    const failed = useFromOutcome(outcome, 7, 2)
    const succeeded = (at: number) => mergeUses(failed, useFromOutcome({ _tag: "Succeeded" }, at, 2))
    return [isFailing(failed, 2), isFailing(succeeded(6), 2), isFailing(succeeded(7), 2), isFailing(failed, 3)]
  }
  const refusals = ["Rejected", "Forbidden", "QuotaExhausted"]

  it.each(tagged(refusals))("counts as failing after %s, until the key is replaced or succeeds", (_tag, outcome) => {
    assert.deepStrictEqual(failingAfter(outcome), [true, true, false, false])
  })

  const others = outcomes.map(({ _tag }) => _tag).filter((tag) => !refusals.includes(tag))
  it.each(tagged(others))("does not count as failing after %s, which is no refusal of the key", (_tag, outcome) => {
    assert.deepStrictEqual(failingAfter(outcome), [false, false, false, false])
  })
})
