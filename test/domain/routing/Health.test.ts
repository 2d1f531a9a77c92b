import { assert, describe, it } from "@effect/vitest"
import { Arbitrary } from "effect"
import * as Code from "../../../src/domain/routing/Health.ts"
import type { Health, Report, Availability } from "../../../src/domain/routing/Health.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"
import { anyReports, healthLaws } from "./healthLaws.ts"
import { propertyRuns } from "./propertyRuns.ts"
import { plainRow } from "./RoutingCase.ts"

describe("the health of a key", () => {
  for (const { law, title } of healthLaws) {
    it.prop(title, [anyReports], ([reports]) => law(Code, reports), propertyRuns)
  }
})

const second = 1000
const minute = 60 * second
const hour = 60 * minute

const keyOf = (key_version: number) => ({ ...plainRow("openai", 0), key_version })
const key = keyOf(1)

const report = (outcome: Outcome, leased_at: number, reported_at = leased_at): Report => ({
  key_version: 1,
  model: "a/one",
  leased_at,
  reported_at,
  outcome
})

const refused = (_tag: "RateLimited" | "Forbidden" | "Rejected" | "QuotaExhausted") =>
  _tag === "RateLimited" ? { _tag, retry_after: null } : { _tag }

/** The lengths of the pauses of a key that is refused whenever it is tried. */
const pausesWhenever = (outcome: Outcome, times: number) => {
  let health: Health | undefined
  let now = 0
  return Array.from({ length: times }, () => {
    health = Code.observe(health, report(outcome, now))
    const availability = Code.availabilityOf(health, key, "a/one", now)
    assert(availability._tag === "Parked" && availability.until !== null)
    const length = availability.until - now
    now = availability.until
    return length / second
  })
}

describe("a pause", () => {
  it.each([
    ["RateLimited", "rate_limited", [5, 10, 20, 40, 80, 160, 300, 300], true],
    ["Forbidden", "forbidden", [60, 120, 240, 480, 960, 1920, 3600, 3600], true],
    ["Rejected", "rejected", [60, 120, 240, 480, 960, 1920, 3600, 3600], false],
    ["QuotaExhausted", "quota_exhausted", [60, 120, 240, 480, 960, 1920, 3600, 3600], false]
  ] as const)("after %s is %s, and doubles with each trial that fails (E22)", (tag, cause, lengths, isOfModel) => {
    assert.deepStrictEqual(pausesWhenever(refused(tag), 8), [...lengths])
    const health = Code.observe(undefined, report(refused(tag), 0))
    const availability = Code.availabilityOf(health, key, "a/one", 0)
    assert.deepStrictEqual(availability, { _tag: "Parked", cause, until: lengths[0] * second })
    assert.deepStrictEqual(Code.availabilityOf(health, key, "a/two", 0), isOfModel ? { _tag: "Free" } : availability)
  })

  it("is as long as Retry-After asks for, up to an hour, whatever came before", () => {
    assert.deepStrictEqual(pausesWhenever({ _tag: "RateLimited", retry_after: 7 * second }, 3), [7, 7, 7])
    assert.deepStrictEqual(pausesWhenever({ _tag: "RateLimited", retry_after: 9 * hour }, 1), [3600])
  })

  it("grows if a lease that was out with the first learns of a longer one, and takes its cause", () => {
    const limited = Code.observe(undefined, report(refused("RateLimited"), 0))
    const health = Code.observe(limited, report(refused("Forbidden"), 0, second))
    assert.deepStrictEqual(health?.models.get("a/one"), {
      cause: "forbidden",
      strikes: 1,
      until: second + minute,
      tried_at: null
    })
  })

  it("is not ended by a success of a lease that was out when it began, but by that of its trial", () => {
    const parked = Code.observe(undefined, report(refused("Rejected"), 0))
    assert.strictEqual(Code.observe(parked, report({ _tag: "Succeeded" }, minute - 1, 2 * minute)), parked)
    assert.isUndefined(Code.observe(parked, report({ _tag: "Succeeded" }, minute)))
  })

  it("of the whole key counts beside one of a model: the later end decides, and one success ends both", () => {
    const limited = Code.observe(undefined, report(refused("RateLimited"), 0))
    const both = Code.observe(limited, report(refused("Rejected"), 0))
    const longer = { _tag: "Parked", cause: "rejected", until: minute } as const
    assert.deepStrictEqual(Code.availabilityOf(both, key, "a/one", 0), longer)
    assert.deepStrictEqual(Code.availabilityOf(both, key, "a/one", minute - 1), longer)
    assert.deepStrictEqual(Code.availabilityOf(both, key, "a/one", minute), { _tag: "Probing" })
    assert.isUndefined(Code.observe(both, report({ _tag: "Succeeded" }, minute)))
  })

  it("ends when the key is replaced, and the next one starts without (Q26)", () => {
    const old = Code.observe(undefined, report(refused("Rejected"), 0))
    assert.deepStrictEqual(Code.availabilityOf(old, keyOf(2), "a/one", 0), { _tag: "Free" })
    const next = Code.observe(old, { ...report(refused("Forbidden"), 0), key_version: 2 })
    assert.isNull(next?.whole)
    assert.strictEqual(next?.key_version, 2)
  })

  it("of a leaked key has no end and no trial", () => {
    const leaked = { ...key, leaked: true }
    const forever = { _tag: "Parked", cause: "leaked", until: null } as const
    assert.deepStrictEqual(Code.availabilityOf(undefined, leaked, "a/one", Number.MAX_SAFE_INTEGER), forever)
    const admission = Code.takeTrial(undefined, leaked, "a/one", Number.MAX_SAFE_INTEGER)
    assert.deepStrictEqual(admission, { _tag: "Refused", reason: "parked" })
  })
})

describe("a trial", () => {
  const admit = (health: Health | undefined, now: number, model = "a/one") => Code.takeTrial(health, key, model, now)
  const parked = Code.observe(undefined, report(refused("Rejected"), 0))
  const tried = (now: number) => {
    const admission = admit(parked, now)
    assert(admission._tag === "Admitted")
    return admission.health
  }
  const refusedFor = (reason: "parked" | "on_trial") => ({ _tag: "Refused", reason }) as const

  it("is not needed for a key without a pause", () => {
    assert.deepStrictEqual(admit(undefined, 0), { _tag: "Admitted", health: undefined })
    const limited = Code.observe(undefined, report(refused("RateLimited"), 0))
    assert.deepStrictEqual(admit(limited, 0, "a/two"), { _tag: "Admitted", health: limited })
  })

  it("is not to be had before the pause ends", () => {
    assert.deepStrictEqual(admit(parked, minute - 1), refusedFor("parked"))
    assert.strictEqual(admit(parked, minute)._tag, "Admitted")
  })

  it("is one at a time, and open to the next after 30 s without a report (Q24)", () => {
    const health = tried(minute)
    assert.deepStrictEqual(admit(health, minute + 30 * second - 1), refusedFor("on_trial"))
    assert.deepStrictEqual(admit(health, minute, "a/two"), refusedFor("on_trial"), "of the whole key, for any model")
    assert.strictEqual(admit(health, minute + 30 * second)._tag, "Admitted")
  })

  it("leaves the credential in the plan, where it is", () => {
    assert.deepStrictEqual(Code.availabilityOf(tried(minute), key, "a/one", minute), { _tag: "Probing" })
  })

  it.each(["UpstreamFailed", "RequestRefused", "Abandoned"] as const)(
    "that ends with %s is open to the next",
    (_tag) => {
      const health = Code.observe(tried(minute), report({ _tag }, minute, minute + 1))
      assert.deepStrictEqual(health, parked)
      assert.strictEqual(admit(health, minute + 1)._tag, "Admitted")
    }
  )

  it("is not ended by the report of another lease", () => {
    const health = Code.observe(tried(minute), report({ _tag: "Abandoned" }, 0, minute + 1))
    assert.deepStrictEqual(admit(health, minute + 1), refusedFor("on_trial"))
  })

  it("that fails is a strike", () => {
    const health = Code.observe(tried(minute), report(refused("Rejected"), minute, minute + second))
    assert.deepStrictEqual(health?.whole, {
      cause: "rejected",
      strikes: 2,
      until: minute + second + 2 * minute,
      tried_at: null
    })
  })
})

describe("pauses of models", () => {
  const after = elementOf([0, second, minute, 2 * minute, hour])
  const anyReport = Arbitrary.all({
    model: Arbitrary.map(integer(0, 400), String),
    outcome: elementOf<Outcome>([
      ...[1, 2, 3].map(() => refused("Forbidden")),
      refused("RateLimited"),
      { _tag: "Succeeded" }
    ]),
    after: oneOf(Arbitrary.Constant(0), Arbitrary.Constant(0), Arbitrary.Constant(second), after)
  })
  const many = Arbitrary.array(anyReport, { minLength: 200, maxLength: 300 })
  const endOf = (availability: Availability) => (availability._tag === "Parked" ? availability.until : null)

  it.prop(
    "are at most 100, and at the limit too none shortens and no other model is affected (Q25, Q28)",
    [many],
    ([reports]) => {
      let health: Health | undefined
      let now = 0
      let largest = 0
      for (const { after, model, outcome } of reports) {
        now += after
        const before = health
        health = Code.observe(before, { ...report(outcome, now), model })
        largest = Math.max(largest, health?.models.size ?? 0)
        const at = now
        const all = Array.from(new Set([model, ...(before?.models.keys() ?? []), ...(health?.models.keys() ?? [])]))
        const [earlier, later] = [before, health].map((known) =>
          all.map((one) => Code.availabilityOf(known, key, one, at))
        ) as [Array<Availability>, Array<Availability>]
        for (const [index, one] of all.entries()) {
          const [old = assert.fail(), next = assert.fail()] = [earlier[index], later[index]]
          if (one !== model) assert.deepStrictEqual(next, old)
          else if (outcome._tag !== "Succeeded") assert.isAtLeast(endOf(next) ?? 0, endOf(old) ?? 0)
        }
      }
      assert.isAtMost(largest, 100)
    },
    { arbitrary: { runs: 25 }, timeout: 120_000 }
  )

  const full = Array.from({ length: 100 }, (_, n) => `a/${n}`).reduce<Health | undefined>(
    (health, model) => Code.observe(health, { ...report(refused("Forbidden"), 0), model }),
    undefined
  )
  const another = (now: number) => Code.observe(full, { ...report(refused("Forbidden"), now), model: "a/new" })

  it("are not begun at the limit, until others were over for an hour: those make room", () => {
    assert.strictEqual(full?.models.size, 100)
    assert.strictEqual(another(minute + hour - 1), full)
    assert.deepStrictEqual(Array.from(another(minute + hour)?.models.keys() ?? []), ["a/new"])
    const grown = Code.observe(full, { ...report(refused("Forbidden"), minute), model: "a/7" })
    assert.strictEqual(grown?.models.get("a/7")?.strikes, 2, "one that is known grows")
  })

  it("count for an hour after their end: then the model needs no trial, and starts with one strike", () => {
    const health = Code.observe(undefined, report(refused("Forbidden"), 0))
    const end = minute + hour
    assert.deepStrictEqual(Code.availabilityOf(health, key, "a/one", end - 1), { _tag: "Probing" })
    assert.deepStrictEqual(Code.availabilityOf(health, key, "a/one", end), { _tag: "Free" })
    assert.deepStrictEqual(Code.takeTrial(health, key, "a/one", end), { _tag: "Admitted", health })
    const strikesAt = (now: number) =>
      Code.observe(health, report(refused("Forbidden"), now))?.models.get("a/one")?.strikes
    assert.deepStrictEqual([strikesAt(end - 1), strikesAt(end)], [2, 1])
  })
})
