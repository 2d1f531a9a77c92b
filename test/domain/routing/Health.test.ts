import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect } from "effect"
import * as Code from "../../../src/domain/routing/Health.ts"
import type { Health, Report } from "../../../src/domain/routing/Health.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import type { Standing } from "../../../src/domain/routing/Standing.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { type Edit, plantedIn } from "./plantedIn.ts"
import { propertyRuns } from "./propertyRuns.ts"
import { plainRow } from "./RoutingCase.ts"

type HealthCode = Pick<typeof Code, "observe" | "standingOf" | "takeTrial">

const second = 1000
const minute = 60 * second
const hour = 60 * minute

const keyOf = (key_version: number) => ({ ...plainRow("openai", 0), key_version })
const key = keyOf(1)

const outcomes: ReadonlyArray<Outcome> = [
  { _tag: "RateLimited", retry_after: null },
  { _tag: "RateLimited", retry_after: 30 * second },
  { _tag: "RateLimited", retry_after: 2 * hour },
  { _tag: "Forbidden" },
  { _tag: "Rejected" },
  { _tag: "QuotaExhausted" },
  { _tag: "Succeeded" },
  { _tag: "UpstreamFailed" },
  { _tag: "RequestRefused" },
  { _tag: "Abandoned" }
]
const saysNothing: ReadonlyArray<Outcome["_tag"]> = ["UpstreamFailed", "RequestRefused", "Abandoned"]
const ofModel: ReadonlyArray<Outcome["_tag"]> = ["RateLimited", "Forbidden"]

const models = ["a/one", "a/two"]

/** Reports in the order in which they arrive, of leases that were made any time before. */
const anyReports: Arbitrary.Arbitrary<ReadonlyArray<Report>> = Arbitrary.map(
  Arbitrary.array(
    Arbitrary.all({
      outcome: elementOf(outcomes),
      model: elementOf(models),
      key_version: elementOf([2, 2, 2, 1]),
      after: elementOf([0, second, 10 * second, 2 * minute, 2 * hour]),
      lasting: elementOf([0, second, 3 * minute, hour]),
      jitter: integer(0, 999)
    }),
    { maxLength: 12 }
  ),
  (steps) => {
    let now = 10 * hour
    return steps.map(({ after, jitter, lasting, ...report }) => {
      now += after + jitter
      return { ...report, reported_at: now, leased_at: now - lasting }
    })
  }
)

const endOf = (standing: Standing) => (standing._tag === "Parked" ? (standing.until ?? Infinity) : 0)

/** Every report with the health before and after it. */
const replay = (code: HealthCode, reports: ReadonlyArray<Report>) => {
  let health: Health | undefined
  return reports.map((report) => {
    const before = health
    health = code.observe(health, report)
    return { report, before, after: health }
  })
}

/** What a report must not change: the pauses without their trials. */
const pauses = (health: Health | undefined) => {
  const plain = ([model, pause]: readonly [string, Code.Pause | null]) => [model, { ...pause, tried_at: null }]
  return health && [health.key_version, plain(["", health.whole]), Array.from(health.models, plain)]
}

const report = (outcome: Outcome, leased_at: number, reported_at = leased_at): Report => ({
  key_version: 1,
  model: "a/one",
  leased_at,
  reported_at,
  outcome
})

interface HealthLaw {
  readonly title: string
  readonly law: (code: HealthCode, reports: ReadonlyArray<Report>) => void
  /** Faults that the law must find. */
  readonly faults: Readonly<Record<string, Edit>>
}

const laws: ReadonlyArray<HealthLaw> = [
  {
    title: "a pause never shortens except by a success, and ends within an hour of the last report (Q25)",
    faults: {
      "the last report decides": ["if (together && until <= pause.until)", "if (false)"],
      "an upstream may ask for any pause": ["Math.min(refusal.retry_after, hour)", "refusal.retry_after"]
    },
    law: (code, reports) => {
      for (const { after, before, report } of replay(code, reports)) {
        for (const model of models) {
          const [earlier = 0, later = 0] = [before, after].map((health) =>
            endOf(code.standingOf(health, keyOf(2), model, report.reported_at))
          )
          if (report.outcome._tag !== "Succeeded") assert.isAtLeast(later, earlier)
          assert.isAtMost(later, Math.max(earlier, report.reported_at + hour))
        }
      }
    }
  },
  {
    title: "50 refusals of leases that were out together are one strike (Q25)",
    faults: { "every refusal is a strike": ["const together =", "const together = false &&"] },
    law: (code, reports) => {
      for (const first of reports.filter(({ outcome }) => !saysNothing.includes(outcome._tag))) {
        const together = Array.from({ length: 50 }, (_, index) => ({
          ...first,
          reported_at: first.reported_at + index
        }))
        const strikes = (all: ReadonlyArray<Report>) => {
          const health = replay(code, all).at(-1)?.after
          return [health?.whole?.strikes, health?.models.get(first.model)?.strikes]
        }
        assert.deepStrictEqual(strikes(together), strikes([first]))
      }
    }
  },
  {
    title: "reports of a replaced key change nothing (Q26)",
    faults: { "any report counts": ["key_version < health.key_version", "false"] },
    law: (code, reports) => {
      const health = replay(
        code,
        reports.map((one) => ({ ...one, key_version: 2 }))
      ).at(-1)?.after
      if (health === undefined) return
      const now = reports.at(-1)?.reported_at ?? 0
      for (const outcome of outcomes) {
        assert.strictEqual(code.observe(health, report(outcome, now - hour, now)), health)
      }
    }
  },
  {
    title: "answers that say nothing about the key change no pause (Q27)",
    faults: { "they clear it": ["return after(whole, ofModel)\n", "return after(null, null)\n"] },
    law: (code, reports) => {
      for (const { after, before, report } of replay(code, reports)) {
        if (!saysNothing.includes(report.outcome._tag)) continue
        const known = before && before.key_version < report.key_version ? undefined : before
        assert.deepStrictEqual(pauses(after), pauses(known))
      }
    }
  },
  {
    title: "a rate limit and a refusal of one model leave the others alone (Q28)",
    faults: { "a rate limit is of the key": ['"rate_limited", scope: "model"', '"rate_limited", scope: "whole"'] },
    law: (code, reports) => {
      const current = reports.map((one) => ({ ...one, key_version: 2 }))
      for (const { after, before, report } of replay(code, current)) {
        if (!ofModel.includes(report.outcome._tag)) continue
        for (const model of models.filter((other) => other !== report.model)) {
          const [earlier, later] = [before, after].map((health) =>
            code.standingOf(health, keyOf(2), model, report.reported_at)
          )
          assert.deepStrictEqual(later, earlier)
        }
      }
    }
  }
]

describe("the health of a key", () => {
  for (const { law, title } of laws) {
    it.prop(title, [anyReports], ([reports]) => law(Code, reports), propertyRuns)
  }

  const cases = Effect.runSync(Arbitrary.sampleEffect(anyReports, { count: 2000, seed: "planted" }))
  const controls = laws.flatMap(({ faults, law, title }) =>
    Object.entries(faults).map(([fault, edit]) => ({ fault, edit, law, title }))
  )
  it.each(controls)("if $fault, it is found that $title (control)", async ({ edit, law }) => {
    const planted = { ...Code, ...(await plantedIn<object>("Health.ts", [edit])) }
    const breaks = (reports: ReadonlyArray<Report>) => {
      try {
        law(planted, reports)
        return false
      } catch {
        return true
      }
    }
    assert.isTrue(cases.some(breaks))
  })
})

const refused = (_tag: "RateLimited" | "Forbidden" | "Rejected" | "QuotaExhausted") =>
  _tag === "RateLimited" ? { _tag, retry_after: null } : { _tag }

/** The lengths of the pauses of a key that is refused whenever it is tried. */
const pausesWhenever = (outcome: Outcome, times: number) => {
  let health: Health | undefined
  let now = 0
  return Array.from({ length: times }, () => {
    health = Code.observe(health, report(outcome, now))
    const standing = Code.standingOf(health, key, "a/one", now)
    assert(standing._tag === "Parked" && standing.until !== null)
    const length = standing.until - now
    now = standing.until
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
    const standing = Code.standingOf(health, key, "a/one", 0)
    assert.deepStrictEqual(standing, { _tag: "Parked", cause, until: lengths[0] * second })
    assert.deepStrictEqual(Code.standingOf(health, key, "a/two", 0), isOfModel ? { _tag: "Free" } : standing)
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
    assert.deepStrictEqual(Code.standingOf(both, key, "a/one", 0), longer)
    assert.deepStrictEqual(Code.standingOf(both, key, "a/one", minute - 1), longer)
    assert.deepStrictEqual(Code.standingOf(both, key, "a/one", minute), { _tag: "Probing" })
    assert.isUndefined(Code.observe(both, report({ _tag: "Succeeded" }, minute)))
  })

  it("ends when the key is replaced, and the next one starts without (Q26)", () => {
    const old = Code.observe(undefined, report(refused("Rejected"), 0))
    assert.deepStrictEqual(Code.standingOf(old, keyOf(2), "a/one", 0), { _tag: "Free" })
    const next = Code.observe(old, { ...report(refused("Forbidden"), 0), key_version: 2 })
    assert.isNull(next?.whole)
    assert.strictEqual(next?.key_version, 2)
  })

  it("of a leaked key has no end and no trial", () => {
    const leaked = { ...key, leaked: true }
    const forever = { _tag: "Parked", cause: "leaked", until: null } as const
    assert.deepStrictEqual(Code.standingOf(undefined, leaked, "a/one", Number.MAX_SAFE_INTEGER), forever)
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
    assert.deepStrictEqual(Code.standingOf(tried(minute), key, "a/one", minute), { _tag: "Probing" })
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
