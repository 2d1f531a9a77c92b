import { assert } from "@effect/vitest"
import { Arbitrary } from "effect"
import type * as Code from "../../../src/domain/routing/Health.ts"
import type { Health, Report, Availability } from "../../../src/domain/routing/Health.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"
import type { Edit } from "./plantedIn.ts"
import { plainRow } from "./RoutingCase.ts"

export type HealthCode = Pick<typeof Code, "observe" | "availabilityOf" | "takeTrial">

const second = 1000
const minute = 60 * second
const hour = 60 * minute

const keyOf = (key_version: number) => ({ ...plainRow("openai", 0), key_version })

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

/** How long after the report before it one comes, and how long after its lease. */
interface Timing {
  readonly after: number
  readonly lasting: number
}

const anyReport = Arbitrary.all({
  outcome: elementOf(outcomes),
  model: elementOf(models),
  key_version: elementOf([2, 2, 2, 1]),
  after: elementOf([0, second, 10 * second, 2 * minute, 2 * hour]),
  lasting: elementOf([0, second, 3 * minute, hour])
})

/** Rate limits of a model within seconds, of leases that overlap. */
const anyRateLimit = Arbitrary.map(
  Arbitrary.all({ after: integer(0, 8 * second), lasting: integer(0, 20 * second) }),
  (times) => ({
    outcome: { _tag: "RateLimited", retry_after: null } as const,
    model: "a/one",
    key_version: 2,
    ...times
  })
)

/** Reports in the order in which they arrive, of leases that were made any time before. */
export const anyReports: Arbitrary.Arbitrary<ReadonlyArray<Report>> = Arbitrary.map(
  oneOf<ReadonlyArray<Timing & Omit<Report, "leased_at" | "reported_at">>>(
    Arbitrary.array(anyReport, { maxLength: 12 }),
    Arbitrary.array(anyRateLimit, { maxLength: 12 })
  ),
  (steps) => {
    let now = 10 * hour
    return steps.map(({ after, lasting, ...report }) => {
      now += after
      return { ...report, reported_at: now, leased_at: now - lasting }
    })
  }
)

const endOf = (availability: Availability) => (availability._tag === "Parked" ? (availability.until ?? Infinity) : 0)

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

interface HealthLaw {
  readonly title: string
  readonly law: (code: HealthCode, reports: ReadonlyArray<Report>) => void
  /** Faults that the law must find. */
  readonly faults: Readonly<Record<string, Edit>>
}

/** What holds for the health of a key, however reports of its leases come. */
export const healthLaws: ReadonlyArray<HealthLaw> = [
  {
    title: "at most one trial of a key and model is out (Q24)",
    faults: {
      "a trial is open to the next lease at once": ["30 * second", "0"],
      "a late refusal forgets the trial": ["tried_at: pause?.tried_at ?? null", "tried_at: null"]
    },
    law: (code, reports) => {
      const current = reports.map((one) => ({ ...one, key_version: 2 }))
      const events = current.flatMap((report) => [
        { at: report.leased_at, isLease: true, report },
        { at: report.reported_at, isLease: false, report }
      ])
      const out = new Map<Report, Availability["_tag"]>()
      let health: Health | undefined
      for (const { at, isLease, report } of events.sort((one, other) => one.at - other.at)) {
        if (!isLease) {
          if (out.delete(report)) health = code.observe(health, report)
          continue
        }
        const { _tag } = code.availabilityOf(health, keyOf(2), report.model, at)
        const admission = code.takeTrial(health, keyOf(2), report.model, at)
        if (admission._tag === "Refused") continue
        const isOut = Array.from(out).some(
          ([{ leased_at, model }, availability]) =>
            availability === "Probing" && model === report.model && at < leased_at + 30 * second
        )
        assert.isFalse(_tag === "Probing" && isOut)
        out.set(report, _tag)
        health = admission.health
      }
    }
  },
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
            endOf(code.availabilityOf(health, keyOf(2), model, report.reported_at))
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
        const late = { key_version: 1, model: "a/one", leased_at: now - hour, reported_at: now, outcome }
        assert.strictEqual(code.observe(health, late), health)
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
            code.availabilityOf(health, keyOf(2), model, report.reported_at)
          )
          assert.deepStrictEqual(later, earlier)
        }
      }
    }
  }
]
