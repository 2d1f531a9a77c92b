import { assert } from "@effect/vitest"
import { Arbitrary } from "effect"
import { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import type * as HealthCode from "../../../src/domain/routing/Health.ts"
import type { Cooldown, Cooldowns, Health } from "../../../src/domain/routing/Health.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import type * as StateCode from "../../../src/service/routing/HealthState.ts"
import type { LeasedKey, PendingCooldown } from "../../../src/service/routing/HealthState.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"

/** The code under test, or a version of it with a planted fault. */
export interface Code {
  readonly health: Pick<typeof HealthCode, "availabilityOf" | "sweptAfter">
  readonly state: Pick<typeof StateCode, "makeHealthState">
}

const second = 1000
const minute = 60 * second
const hour = 60 * minute

const routers = 3
const models = ["a/one", "a/two"]
const account_id = AccountId.make("00000000-0000-7000-8000-00000000000a")
const credential_id = CredentialId.make("00000000-0000-7000-9000-000000000001")

const limited = { _tag: "RateLimited", retry_after: null } as const
const succeeded = { _tag: "Succeeded" } as const

const outcomes: ReadonlyArray<Outcome> = [
  limited,
  limited,
  limited,
  { _tag: "RateLimited", retry_after: 30 * second },
  { _tag: "RateLimited", retry_after: 3 * hour },
  { _tag: "RateLimited", retry_after: Number.NaN },
  { _tag: "Forbidden" },
  { _tag: "Rejected" },
  { _tag: "QuotaExhausted" },
  succeeded,
  succeeded,
  succeeded,
  succeeded,
  { _tag: "UpstreamFailed" },
  { _tag: "Abandoned" }
]

/** What becomes of a statement that stores changes. Only of the first the router learns that they are stored. */
const fates = ["stored", "stored", "lost", "answer lost", "late"] as const

/** What happens next, on one of the routers or in the database. */
export type Event =
  | { readonly _tag: "wait"; readonly milliseconds: number }
  | { readonly _tag: "read"; readonly router: number }
  | { readonly _tag: "lease"; readonly router: number; readonly model: string }
  | { readonly _tag: "report"; readonly lease: number; readonly outcome: Outcome }
  | { readonly _tag: "leave"; readonly lease: number }
  /** Begins to store what waits on a router, or ends that if it has begun. */
  | { readonly _tag: "store"; readonly router: number; readonly fate: (typeof fates)[number] }
  | { readonly _tag: "arrive" }
  | { readonly _tag: "replace" }
  /** Removes rows that are long over. Every router reads what is left before it next plans. */
  | { readonly _tag: "sweep" }

const router = integer(0, routers - 1)
const tagged = <Tag extends string, Fields>(_tag: Tag, fields: Arbitrary.Arbitrary<Fields>) =>
  Arbitrary.map(fields, (values) => ({ _tag, ...values }))
const lease = tagged("lease", Arbitrary.all({ router, model: elementOf(models) }))
const report = tagged("report", Arbitrary.all({ lease: integer(0, 5), outcome: elementOf(outcomes) }))
const wait = tagged(
  "wait",
  Arbitrary.all({
    milliseconds: elementOf([1, 2 * second, 6 * second, 6 * second, 61 * second, 20 * minute, 67 * minute])
  })
)
const anyEvent: Arbitrary.Arbitrary<Event> = oneOf<Event>(
  wait,
  wait,
  tagged("read", Arbitrary.all({ router })),
  lease,
  lease,
  lease,
  report,
  report,
  report,
  tagged("leave", Arbitrary.all({ lease: integer(0, 5) })),
  tagged("store", Arbitrary.all({ router, fate: elementOf(fates) })),
  tagged("store", Arbitrary.all({ router, fate: elementOf(fates) })),
  Arbitrary.Constant({ _tag: "arrive" } as const),
  elementOf<Event>([{ _tag: "replace" }, { _tag: "sweep" }, { _tag: "sweep" }, { _tag: "arrive" }])
)

export interface Run {
  readonly events: ReadonlyArray<Event>
  /** How many models of the key a router tells apart. */
  readonly apart: number
  /** How far the clock of each router is ahead of the database's. */
  readonly skews: ReadonlyArray<number>
}

export const anyRun: Arbitrary.Arbitrary<Run> = Arbitrary.all({
  events: Arbitrary.array(anyEvent, { minLength: 20, maxLength: 80 }),
  apart: elementOf([1, 2, 2]),
  skews: Arbitrary.array(elementOf([0, -400 * hour, 9000 * hour, 7]), { minLength: routers, maxLength: routers })
})

// The reference. It knows every report at once, in the database's time, and shares no code with the routers.

/** A report as the reference knows it: what the lease was made under, and what came of it. */
interface Known {
  readonly key_version: number
  readonly scope: string
  readonly epoch: number
  readonly strikes: number
  readonly refused: { readonly until: number } | undefined
}

interface Expected {
  readonly epoch: number
  readonly until: number
  readonly strikes: number
}

const cooldowns = { RateLimited: [5 * second, 5 * minute], Forbidden: [minute, hour] } as const

const lengthOf = (outcome: Outcome, strikes: number) => {
  if (outcome._tag === "RateLimited" && outcome.retry_after !== null && !Number.isNaN(outcome.retry_after)) {
    return Math.min(outcome.retry_after, hour)
  }
  const [first, longest] = cooldowns[outcome._tag === "RateLimited" ? "RateLimited" : "Forbidden"]
  return Math.min(first * 2 ** (strikes - 1), longest)
}

/** The newest epoch that anybody reached by a success of a trial, and in it the refusal that ends last. */
const expectedOf = (reports: ReadonlyArray<Known>, key_version: number, scope: string): Expected => {
  const all = reports.filter((one) => one.key_version === key_version && one.scope === scope)
  const reached = all.filter(({ refused, strikes }) => refused === undefined && strikes > 0)
  const epoch = Math.max(0, ...reached.map((one) => one.epoch + 1))
  return all.reduce<Expected>(
    (last, { refused, strikes, ...one }) =>
      one.epoch === epoch && refused !== undefined && refused.until >= last.until
        ? {
            epoch,
            until: refused.until,
            strikes: Math.max(strikes + 1, refused.until === last.until ? last.strikes : 0)
          }
        : last,
    { epoch, until: Number.NEGATIVE_INFINITY, strikes: 0 }
  )
}

// The routers, over a database whose rows keep the greatest change of each cooldown, as the statement does.

interface Row {
  readonly stored_at: number
  readonly key_version: number
  readonly epoch: number
  readonly until: number
  readonly strikes: number
  readonly cause: Cooldown["cause"]
}

interface Sent {
  readonly model: string
  readonly row: Omit<Row, "stored_at">
}

interface Leased {
  readonly router: number
  readonly key: LeasedKey
  readonly health: Health
  readonly began: number
  ended: boolean
}

const isAbove = (one: Sent["row"], other: Row | undefined) =>
  other === undefined ||
  one.key_version > other.key_version ||
  (one.key_version === other.key_version &&
    (one.epoch > other.epoch ||
      (one.epoch === other.epoch &&
        (one.until > other.until || (one.until === other.until && one.strikes > other.strikes)))))

/** How long an attempt takes at most. */
const longestAttempt = 2 * hour

/** Runs the events and fails where a router offers what is forbidden, or where the routers do not agree in the end. */
export const runModel = ({ health: code, state }: Code, { apart, events, skews }: Run): void => {
  let now = 1000 * hour
  let key_version = 1
  const rows = new Map<string, Row>()
  let reports: Array<Known & { readonly router: number }> = []
  const leases: Array<Leased> = []
  const late: Array<ReadonlyArray<Sent>> = []
  const clock = (router: number) => now + (skews[router] ?? 0)
  const all = Array.from({ length: routers }, () => ({
    state: state.makeHealthState(apart),
    stored: new Map() as Cooldowns,
    key_version: 1,
    waiting: Array<PendingCooldown>(),
    storing: undefined as ReadonlyArray<PendingCooldown> | undefined
  }))
  let reads = 0
  const at = (router: number) => all[router] ?? assert.fail("no such router")

  const read = (router: number) => {
    const own = at(router)
    own.key_version = key_version
    // No two reads convert an end to quite the same time.
    reads += 1
    const drift = (reads % 4) / 8
    own.stored = new Map(
      Array.from(rows)
        .filter(([, row]) => row.key_version === key_version)
        .map(([model, { stored_at: _, until, ...row }]) => [
          model,
          { ...row, until: until - now + clock(router) + drift }
        ])
    )
  }
  const sentBy = (router: number, changes: ReadonlyArray<PendingCooldown>): ReadonlyArray<Sent> =>
    changes.map(({ cooldown, model }) => ({ model, row: { ...cooldown, until: cooldown.until - clock(router) + now } }))
  const store = (sent: ReadonlyArray<Sent>) => {
    for (const { model, row } of sent)
      if (row.key_version === key_version && isAbove(row, rows.get(model))) rows.set(model, { ...row, stored_at: now })
  }
  const keyOn = (router: number, model: string): LeasedKey => ({
    account_id,
    credential_id,
    key_version: at(router).key_version,
    model
  })
  const availabilityOn = (router: number, model: string) => {
    const { state, stored } = at(router)
    const health = state.healthOf(keyOn(router, model), stored, clock(router))
    return { health, availability: code.availabilityOf(health, false, { monotonic: clock(router), wall: now }) }
  }

  /** What its own reports alone, or the last read alone, forbid is not offered. */
  const checkOffer = (router: number, model: string) => {
    const { availability } = availabilityOn(router, model)
    const own = at(router)
    for (const scope of ["", model]) {
      const reported = expectedOf(
        reports.filter((one) => one.router === router),
        own.key_version,
        scope
      )
      const seen = own.stored.get(scope)
      const isUndone = seen !== undefined && seen.epoch > reported.epoch
      if (reported.until > now && !isUndone)
        assert.strictEqual(availability._tag, "Parked", "its own report forbids it")
      const isOlder = seen !== undefined && seen.epoch < reported.epoch
      if (seen !== undefined && seen.until > clock(router) && !isOlder) {
        assert.strictEqual(availability._tag, "Parked", "what was read forbids it")
      }
    }
  }

  const leaseOn = (router: number, model: string) => {
    checkOffer(router, model)
    const { availability, health } = availabilityOn(router, model)
    if (availability._tag === "Parked") return
    const key = keyOn(router, model)
    const leased: Leased = { router, key, health, began: now, ended: false }
    const out = leases.filter((one) => !one.ended && one.router === router && now < one.began + 30 * second)
    const isSameTrial = (one: Cooldown, other: Cooldown) =>
      one.key_version === other.key_version && one.epoch === other.epoch && one.strikes === other.strikes
    const triedNow = (scope: "whole" | "model") =>
      health[scope].strikes > 0 &&
      out.some((one) => (scope === "whole" || one.key.model === model) && isSameTrial(one.health[scope], health[scope]))
    const isTried = triedNow("whole") || triedNow("model")
    const isAdmitted = at(router).state.admit(key, health, leased, clock(router))
    assert.strictEqual(isAdmitted, !isTried, "one trial at a time (Q24)")
    if (isAdmitted) leases.push(leased)
  }

  const end = (leased: Leased) => {
    leased.ended = true
    at(leased.router).state.releaseTrial(leased.key, leased.health, leased)
  }

  /** Whether a router has reported a refusal of a model that still counts. */
  const isRemembered = (router: number, model: string) =>
    reports.some(
      (one) =>
        one.router === router && one.scope === model && one.refused !== undefined && now < one.refused.until + hour
    )

  const reportOf = (leased: Leased, outcome: Outcome) => {
    const { health, key, router } = leased
    const others = models.filter((model) => model !== key.model && isRemembered(router, model))
    const grown = at(router).state.report(key, health, outcome, clock(router))
    at(router).waiting.push(...grown)
    /** Only the router knows whether it told the model apart when it was reported on before. */
    const folds = others.length >= apart && !grown.some(({ model }) => model === key.model)
    const note = (scope: string, { epoch, strikes }: Cooldown, refused: boolean) =>
      reports.push({
        router,
        key_version: key.key_version,
        scope,
        epoch,
        strikes,
        refused: refused ? { until: now + lengthOf(outcome, strikes + 1) } : undefined
      })
    if (outcome._tag === "Succeeded") {
      note("", health.whole, false)
      note(key.model, health.model, false)
    } else if (outcome._tag === "Rejected" || outcome._tag === "QuotaExhausted") note("", health.whole, true)
    else if (outcome._tag === "RateLimited" || outcome._tag === "Forbidden") {
      if (folds) note("", health.whole, true)
      else note(key.model, health.model, true)
    }
    end(leased)
  }

  const open = (index: number) => {
    const out = leases.filter(({ ended }) => !ended)
    return out[index % Math.max(1, out.length)]
  }

  const step = (event: Event) => {
    switch (event._tag) {
      case "wait":
        now += event.milliseconds
        return leases.filter(({ began, ended }) => !ended && now >= began + longestAttempt).forEach(end)
      case "read":
        return read(event.router)
      case "lease":
        return leaseOn(event.router, event.model)
      case "report": {
        const leased = open(event.lease)
        return leased === undefined ? undefined : reportOf(leased, event.outcome)
      }
      case "leave": {
        const leased = open(event.lease)
        return leased === undefined ? undefined : end(leased)
      }
      case "store": {
        const own = at(event.router)
        if (own.storing !== undefined) {
          own.waiting.unshift(...own.storing)
          own.storing = undefined
          return
        }
        const taken = own.waiting.splice(0)
        const sent = sentBy(event.router, taken)
        if (event.fate === "stored" || event.fate === "answer lost") store(sent)
        if (event.fate === "late") late.push(sent)
        if (event.fate !== "stored") own.storing = taken
        return
      }
      case "arrive":
        return store(late.shift() ?? [])
      case "replace":
        key_version += 1
        return
      case "sweep":
        return sweep()
    }
  }

  /** Everything that was reported is stored and read by all. */
  const settle = () => {
    while (late.length > 0) step({ _tag: "arrive" })
    for (const router of all.keys()) {
      if (at(router).storing !== undefined) step({ _tag: "store", router, fate: "stored" })
      step({ _tag: "store", router, fate: "stored" })
    }
    for (const router of all.keys()) read(router)
  }

  /** What is swept is remembered by no router, so the reference may forget it as well. */
  const sweep = () => {
    settle()
    const swept = Array.from(rows).filter(([, row]) => now >= Math.max(row.until, row.stored_at) + code.sweptAfter)
    for (const [scope] of swept) rows.delete(scope)
    for (const router of all.keys()) {
      read(router)
      for (const [scope, { key_version }] of swept) {
        const key = { account_id, credential_id, key_version, model: scope }
        const { epoch, strikes } = at(router).state.healthOf(key, new Map(), clock(router)).model
        assert.deepStrictEqual({ epoch, strikes }, { epoch: 0, strikes: 0 }, `router ${router} remembers what is swept`)
      }
    }
    reports = reports.filter(
      (one) => !swept.some(([scope, { key_version }]) => scope === one.scope && key_version === one.key_version)
    )
  }

  events.forEach(step)
  settle()
  for (const router of all.keys()) {
    for (const model of models) {
      const { health } = availabilityOn(router, model)
      for (const [scope, found] of [
        ["", health.whole],
        [model, health.model]
      ] as const) {
        const expected = expectedOf(reports, key_version, scope)
        const isForgotten = now >= expected.until + hour
        const until = found.until - (skews[router] ?? 0)
        const drift = Number.isFinite(until) ? until - expected.until : 0
        assert.isTrue(drift >= 0 && drift < 1, `router ${router} knows when the cooldown of ${scope} ends`)
        assert.deepStrictEqual(
          { epoch: found.epoch, until: until - drift, strikes: found.strikes },
          { ...expected, strikes: isForgotten ? 0 : expected.strikes },
          `router ${router} knows all reports of ${scope || "the whole key"}`
        )
      }
    }
  }
}
