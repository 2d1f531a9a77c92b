import { Arbitrary } from "effect"
import {
  availabilityOf,
  compare,
  contributionOf,
  type Cooldown,
  type Health,
  join,
  cooldownCauses,
  expireStrikes,
  isBlamed,
  initialCooldown
} from "../../../src/domain/routing/Health.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { propertyRuns } from "./propertyRuns.ts"
import { assert, describe, it } from "../../support/it.ts"

const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** Few values of each part, so that many are equal. */
const anyCooldown: Arbitrary.Arbitrary<Cooldown> = Arbitrary.all({
  key_version: integer(1, 2),
  epoch: integer(0, 2),
  until: elementOf([Number.NEGATIVE_INFINITY, 0, second, hour]),
  strikes: integer(0, 2),
  cause: elementOf([null, ...cooldownCauses])
})

const free: Health = { whole: initialCooldown(1), model: initialCooldown(1) }
const at = (monotonic: number) => ({ monotonic, wall: monotonic })
const availability = (health: Health, now: number, leaked = false) => availabilityOf(health, leaked, at(now))
const refused = (_tag: "RateLimited" | "Forbidden" | "Rejected" | "QuotaExhausted") =>
  _tag === "RateLimited" ? { _tag, retry_after: null } : { _tag }

/** The lengths of the cooldowns of a key that is refused whenever it is tried, in seconds. */
const cooldownsWhenever = (outcome: Outcome, times: number) => {
  let health = free
  let now = 0
  return Array.from({ length: times }, () => {
    health = contributionOf(health, outcome, now)
    const found = availability(health, now)
    assert(found._tag === "Parked" && found.until !== null)
    const length = found.until - now
    now = found.until
    return length / second
  })
}

describe("the join of cooldowns", () => {
  it.prop(
    "is commutative, associative and idempotent, and an upper bound of both",
    [anyCooldown, anyCooldown, anyCooldown],
    ([one, other, third]) => {
      assert.deepStrictEqual(join(one, other), join(other, one))
      assert.deepStrictEqual(join(join(one, other), third), join(one, join(other, third)))
      assert.deepStrictEqual(join(one, one), one)
      assert.isAtLeast(compare(join(one, other), one), 0)
    },
    propertyRuns
  )

  it.prop(
    "keeps only the cooldown of the newer key version (Q26)",
    [anyCooldown],
    ([cooldown]) => {
      const next = initialCooldown(cooldown.key_version + 1)
      assert.deepStrictEqual(join(cooldown, next), next)
      assert.deepStrictEqual(join(cooldown, initialCooldown(cooldown.key_version)), cooldown)
    },
    propertyRuns
  )
})

describe("a cooldown", () => {
  it.each([
    ["RateLimited", "rate_limited", [5, 10, 20, 40, 80, 160, 300, 300], "model"],
    ["Forbidden", "forbidden", [5, 10, 20, 40, 80, 160, 300, 300], "model"],
    ["Rejected", "rejected", [60, 120, 240, 480, 960, 1920, 3600, 3600], "whole"],
    ["QuotaExhausted", "quota_exhausted", [60, 120, 240, 480, 960, 1920, 3600, 3600], "whole"]
  ] as const)("after %s has cause %s, and doubles up to a limit (E22)", (tag, cause, lengths, scope) => {
    assert.deepStrictEqual(cooldownsWhenever(refused(tag), 8), [...lengths])
    const after = contributionOf(free, refused(tag), 0)
    assert.deepStrictEqual(availability(after, 0), { _tag: "Parked", cause, until: lengths[0] * second })
    assert.deepStrictEqual(after, { ...free, [scope]: after[scope] })
  })

  it.each([
    [7 * second, 7],
    [9 * hour, 3600],
    [Number.POSITIVE_INFINITY, 3600]
  ])("lasts as long as Retry-After asks, at most an hour, and does not double: %s ms", (retry_after, length) => {
    assert.deepStrictEqual(cooldownsWhenever({ _tag: "RateLimited", retry_after }, 3), [length, length, length])
  })

  it.each([Number.NaN, -1])("has the usual length if Retry-After is invalid: %s", (retry_after) => {
    assert.deepStrictEqual(cooldownsWhenever({ _tag: "RateLimited", retry_after }, 1), [5])
  })

  it("counts concurrent refusals as one strike, and ends with the last of their cooldowns (Q25)", () => {
    const [first, last] = [0, 2 * second].map((now) => contributionOf(free, refused("Rejected"), now).whole)
    assert(first !== undefined && last !== undefined)
    assert.deepStrictEqual(join(last, first), { ...last, strikes: 1, until: 2 * second + minute })
  })

  it("ends with a success on trial, but not with a success of a lease that began before the cooldown", () => {
    const rejected = contributionOf(free, refused("Rejected"), 0)
    const late = contributionOf(free, { _tag: "Succeeded" }, 2 * minute)
    assert.deepStrictEqual(join(rejected.whole, late.whole), rejected.whole)
    const cleared = contributionOf(rejected, { _tag: "Succeeded" }, minute)
    assert.deepStrictEqual(availability(cleared, minute), { _tag: "Free" })
    const lateRefusal = contributionOf(free, refused("Rejected"), 3 * minute)
    assert.deepStrictEqual(join(cleared.whole, lateRefusal.whole), cleared.whole)
  })

  it("of a whole key and one of a model apply together: the later end counts, and one success ends both", () => {
    const limited = contributionOf(free, refused("RateLimited"), 0)
    const both = contributionOf(limited, refused("Rejected"), 0)
    assert.deepStrictEqual(availability(both, 0), { _tag: "Parked", cause: "rejected", until: minute })
    assert.deepStrictEqual(availability(both, minute), { _tag: "OnTrial", until: minute + hour })
    assert.deepStrictEqual(availability(contributionOf(both, { _tag: "Succeeded" }, minute), minute), { _tag: "Free" })
  })

  it.each([
    ["rejected", [true, true, true]],
    ["quota_exhausted", [true, true, true]],
    ["forbidden", [false, false, true]],
    ["rate_limited", [false, false, false]],
    ["leaked", [false, false, false]]
  ])("with the cause %s blames the key after one, two and three refusals: %j", (cause, blamed) => {
    assert.deepStrictEqual(
      [1, 2, 3].map((strikes) => isBlamed({ cause, strikes })),
      blamed
    )
  })

  it.each(["NotServed", "UpstreamFailed", "RequestRefused", "Abandoned"] as const)(
    "is unchanged by outcome %s (Q27)",
    (_tag) => {
      const parked = contributionOf(free, refused("Forbidden"), 0)
      assert.strictEqual(contributionOf(parked, { _tag }, minute), parked)
    }
  )

  it("leaves the key on trial for an hour after its end; then the key is free, and strikes restart", () => {
    const { model } = contributionOf(free, refused("Forbidden"), 0)
    const end = 5 * second + hour
    const healthAt = (now: number): Health => ({ ...free, model: expireStrikes(model, now) })
    assert.deepStrictEqual(availability(healthAt(end - 1), end - 1), { _tag: "OnTrial", until: end })
    assert.deepStrictEqual(availability(healthAt(end), end), { _tag: "Free" })
    const strikesAt = (now: number) => contributionOf(healthAt(now), refused("Forbidden"), now).model.strikes
    assert.deepStrictEqual([strikesAt(end - 1), strikesAt(end)], [2, 1])
    assert.isAbove(compare(contributionOf(healthAt(end), refused("Forbidden"), end).model, model), 0)
  })

  it("of a leaked key has no end", () => {
    assert.deepStrictEqual(availability(free, Number.MAX_SAFE_INTEGER, true), {
      _tag: "Parked",
      cause: "leaked",
      until: null
    })
  })

  it("shows its end in milliseconds since 1970, although it is measured by the monotonic clock", () => {
    const parked = contributionOf(free, refused("Rejected"), 500)
    assert.deepStrictEqual(availabilityOf(parked, false, { monotonic: 500.4, wall: 1_000_000 }), {
      _tag: "Parked",
      cause: "rejected",
      until: 1_000_000 + minute
    })
  })
})
