import { assert } from "@effect/vitest"
import { Arbitrary, Effect, Exit, Fiber, Latch, Layer, Schema } from "effect"
import { TestClock } from "effect/testing"
import { AccountId, CredentialId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import { searchStart } from "../../src/domain/routing/planFor.ts"
import type { OpenRoutes, RouteAnswer } from "../../src/gateway/OpenRoutes.ts"
import { initialCooldown } from "../../src/domain/routing/Health.ts"
import { Lease } from "../../src/service/routing/Lease.ts"
import type { PlannedRequest } from "../../src/service/routing/PlannedRequest.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { LeaseRefused, PoolsUnavailable } from "../../src/service/routing/RouterErrors.ts"
import { makeWalk, type RouterOperations } from "../../src/service/routing/Walk.ts"
import { requestOf } from "../support/service/planning.ts"
import { elementOf, integer, oneOf } from "../support/memory/arbitraries.ts"

const tenMinutes = 10 * 60 * 1000

/** A key of a plan: of which provider, and whether its lease will be refused. */
interface Key {
  readonly provider: "azure" | "cohere"
  readonly refused: boolean
}

/** What a gateway, its clients, time and the database do. Routes are named by their number. */
export type Act =
  | { readonly act: "open"; readonly keys: ReadonlyArray<Key> }
  /** Of the open attempt, of the one before, or of another one; perhaps twice at the same time, or to end the route. */
  | {
      readonly act: "report"
      readonly route: number
      readonly off: number
      readonly outcome: Outcome
      readonly twice: boolean
      readonly goesOn: boolean
    }
  | { readonly act: "abandon"; readonly route: number }
  | { readonly act: "wait"; readonly millis: number }
  | { readonly act: "database"; readonly away: boolean }

const outcomes: ReadonlyArray<Outcome> = [
  { _tag: "Rejected" },
  { _tag: "Rejected" },
  { _tag: "UpstreamFailed" },
  { _tag: "UpstreamFailed" },
  { _tag: "Succeeded" },
  { _tag: "Abandoned" }
]

const anyKey: Arbitrary.Arbitrary<Key> = elementOf([
  { provider: "azure", refused: false },
  { provider: "azure", refused: true },
  { provider: "cohere", refused: false }
])

const boolean = Arbitrary.schema(Schema.Boolean)

const anyAct: Arbitrary.Arbitrary<Act> = oneOf<Act>(
  Arbitrary.map(Arbitrary.array(anyKey, { maxLength: 6 }), (keys) => ({ act: "open", keys })),
  ...[1, 2, 3].map(() =>
    Arbitrary.flatMap(integer(0, 3), (route) =>
      Arbitrary.flatMap(elementOf([0, 0, 0, -1, -1, -2, 1]), (off) =>
        Arbitrary.flatMap(elementOf(outcomes), (outcome) =>
          Arbitrary.map(Arbitrary.all({ twice: boolean, goesOn: elementOf([true, true, false]) }), (how): Act => ({
            act: "report",
            route,
            off,
            outcome,
            ...how
          }))
        )
      )
    )
  ),
  Arbitrary.map(integer(0, 3), (route) => ({ act: "abandon", route })),
  Arbitrary.map(elementOf([1, 999, 1000, 59_999, 60_000, tenMinutes - 1, tenMinutes]), (millis) => ({
    act: "wait",
    millis
  })),
  Arbitrary.map(boolean, (away) => ({ act: "database", away }))
)

export const anyActs = Arbitrary.array(anyAct, { minLength: 1, maxLength: 14 })

const final = (outcome: Outcome) => outcome._tag === "Succeeded" || outcome._tag === "Abandoned"

/** Answers that are given within a second are kept together, for a minute after the last of them. */
const makeKeep = () => {
  let newest = { since: Number.NEGATIVE_INFINITY, until: 0 }
  return (now: number) => {
    if (now >= newest.since + 1000) newest = { since: now, until: 0 }
    newest.until = now + 60_000
    return newest
  }
}

/** A route as plain data: what a careful reader of the documentation expects. */
class Expected {
  readonly keys: ReadonlyArray<Key>
  readonly until: number
  at = 0
  opened = 0
  isOpen = false
  isGone = false
  /** Until when its last answer is kept, once it has ended by a report. */
  kept: { readonly until: number } | undefined
  last: { n: number; answer: string | undefined } | undefined
  readonly failures = { azure: 0, cohere: 0 }
  current: Key["provider"] = "azure"

  constructor(keys: ReadonlyArray<Key>, until: number) {
    this.keys = keys
    this.until = until
  }

  next(away: boolean): string {
    for (; this.at < this.keys.length; this.at++) {
      const key = this.keys[this.at] as Key
      if (this.failures[key.provider] >= 2) continue
      if (away) return "503"
      if (key.refused) continue
      this.isOpen = true
      this.current = key.provider
      this.opened += 1
      return `${this.opened} with key ${this.at++}`
    }
    return this.finish()
  }

  finish(): string {
    this.isGone = true
    this.isOpen = false
    return "no more"
  }

  report(n: number, outcome: Outcome, goesOn: boolean, now: number, away: boolean): string {
    if (this.kept !== undefined) return now < this.kept.until && this.last?.n === n ? (this.last.answer ?? "") : "404"
    if (this.isGone || now >= this.until) return "404"
    if (this.last?.n === n) {
      if (!goesOn) this.last.answer = this.finish()
      if (this.last.answer === "503") this.last.answer = this.next(away)
      return this.last.answer ?? "404"
    }
    if (!this.isOpen || n !== this.opened) return "409"
    this.isOpen = false
    this.failures[this.current] = outcome._tag === "UpstreamFailed" ? this.failures[this.current] + 1 : 0
    this.last = { n, answer: final(outcome) || !goesOn ? this.finish() : this.next(away) }
    return this.last.answer ?? ""
  }

  abandon(now: number): string {
    if (this.isGone || now >= this.until) return "404"
    this.isGone = true
    this.isOpen = false
    this.last = undefined
    return "gone"
  }
}

const idOf = (n: number) => CredentialId.make(`00000000-0000-7000-9000-${String(n).padStart(12, "0")}`)

const owner = {
  account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
  workspace_id: WorkspaceId.make("00000000-0000-7000-8000-00000000000b")
}

export const planOf = (keys: ReadonlyArray<Key>, account_id = owner.account_id): PlannedRequest => ({
  steps: keys.map(({ provider }, n) => ({
    _tag: "Own",
    provider,
    section: "prioritized",
    credential_id: idOf(n),
    key_version: 1,
    row: keys[n]?.refused === true ? "refused" : "1",
    region: null,
    on_trial: false
  })),
  providers: [],
  retry_at: null,
  request: { ...requestOf({ ...owner, account_id }), workspace_id: owner.workspace_id },
  freshness: 0,
  isEmpty: keys.length === 0,
  members: keys.length,
  start: { versions: "", place: searchStart }
})

/** A router whose leases are counted, whose database can be cut off, and which can be made to wait. */
export const fakeRouter = () => {
  const leased = new Set<Lease>()
  const reported = new Map<Lease, number>()
  const outcomes: Array<Outcome["_tag"]> = []
  const state = { away: false, latch: Latch.makeUnsafe(true) }
  /** Answers at once, as with keys in memory, unless it is made to wait. */
  const lease: RouterOperations["lease"] = (_request, step, made) => {
    const answer = (): Effect.Effect<Lease, LeaseRefused | PoolsUnavailable> => {
      if (state.away) return Effect.fail(new PoolsUnavailable())
      if (step.row === "refused") return Effect.fail(new LeaseRefused({ reason: "parked" }))
      const { credential_id, key_version, provider, region } = step
      const terms = {
        credential_id,
        key_version,
        provider,
        region,
        model: "a/model",
        leased_at: 0,
        label: "",
        keys: "as_stored"
      } as const
      const health = { whole: initialCooldown(key_version), model: initialCooldown(key_version) }
      const lease = new Lease({ ...terms, account_id: owner.account_id }, health)
      lease.fill(Buffer.from("key"))
      leased.add(lease)
      made(lease)
      return Effect.succeed(lease)
    }
    return Effect.suspend(() => (state.latch.isOpen() ? answer() : state.latch.whenOpen(Effect.suspend(answer))))
  }
  const layer = Layer.mock(Router, {
    redact: (text) => text,
    walk: makeWalk({
      lease,
      search: ({ steps }) => ({
        restart: () => {},
        next: (isWanted) =>
          Effect.sync(() =>
            steps.find((step) => isWanted(step.provider, step._tag === "Own" ? step.credential_id : undefined))
          )
      }),
      retryAt: () => Effect.succeed(null),
      end: (lease, { _tag }) => {
        outcomes.push(_tag)
        assert.isTrue(leased.delete(lease), "an attempt is reported while its lease lasts")
        reported.set(lease, (reported.get(lease) ?? 0) + 1)
        lease.wipe()
      }
    })
  })
  return { layer, leased, reported, outcomes, state }
}

const shown = (exit: Exit.Exit<RouteAnswer, { readonly _tag: string }>) => {
  if (Exit.isFailure(exit)) {
    const tag = JSON.stringify(exit.cause)
    return tag.includes("AttemptNotOpen") ? "409" : tag.includes("NotFound") ? "404" : "503"
  }
  const { next } = exit.value
  if (next === undefined) return "no more"
  const { step } = next.attempt
  return `${next.n} with key ${step._tag === "Own" ? Number(step.credential_id.slice(-12)) : "none"}`
}

/** Whatever happens: one lease an open route, and each attempt reported once. */
const assertSane = ({ leased, reported }: ReturnType<typeof fakeRouter>, open: number, expiring = 0) => {
  assert.isAtLeast(leased.size, open, "leases")
  assert.isAtMost(leased.size, open + expiring, "leases")
  for (const times of reported.values()) assert.strictEqual(times, 1, "reports of a lease")
}

export type Code = typeof OpenRoutes

/** Runs the acts one after the other, and compares each answer and the leases that are out with those of the reference. */
export const runInTurn = (code: Code, acts: ReadonlyArray<Act>) => {
  const fake = fakeRouter()
  return Effect.scoped(
    Effect.gen(function* () {
      const { abandon, open, report } = yield* code.make.pipe(Effect.provide(fake.layer))
      const routes: Array<{ readonly id: string; readonly expected: Expected }> = []
      const keep = makeKeep()
      let now = 0
      for (const act of acts) {
        if (act.act === "wait") {
          now += act.millis
          yield* TestClock.adjust(act.millis)
        }
        if (act.act === "database") fake.state.away = act.away
        if (act.act === "open") {
          const expected = new Expected(act.keys, now + tenMinutes)
          const answer = yield* Effect.exit(open(Effect.succeed(planOf(act.keys))))
          const wanted = expected.next(fake.state.away)
          if (wanted === "503") expected.isGone = true
          assert.strictEqual(shown(answer), wanted, "open")
          if (Exit.isSuccess(answer)) routes.push({ id: answer.value.id, expected })
        }
        if (act.act === "report" || act.act === "abandon") {
          const route = routes[act.route]
          if (route === undefined) continue
          const { expected, id } = route
          if (act.act === "abandon") {
            const exit = yield* Effect.exit(abandon(id))
            assert.strictEqual(Exit.isSuccess(exit) ? "gone" : "404", expected.abandon(now))
            continue
          }
          const n = expected.opened + act.off
          const one = Effect.suspend(() => Effect.exit(report(id, n, act.outcome, act.goesOn)))
          const answers = yield* Effect.all(act.twice ? [one, one] : [one], { concurrency: 2 })
          for (const answer of answers) {
            const wanted = expected.report(n, act.outcome, act.goesOn, now, fake.state.away)
            assert.strictEqual(shown(answer), wanted, "report")
            if (wanted === "no more") expected.kept ??= keep(now)
          }
        }
        // Expired routes are ended within a second, even if nobody asks.
        const held = routes.filter(({ expected: { isGone, isOpen, until } }) => isOpen && !isGone && now < until + 1000)
        const isExpiring = ({ expected: { until } }: (typeof routes)[number]) => now >= until
        assertSane(fake, held.length - held.filter(isExpiring).length, held.filter(isExpiring).length)
      }
    })
  ).pipe(
    Effect.tap(() => Effect.sync(() => assertSane(fake, 0))),
    Effect.provide(TestClock.layer())
  )
}

/** Runs the acts while no lease is granted, so that all are in progress at once; then lets them go on. */
export const runAtOnce = (code: Code, acts: ReadonlyArray<Act>) => {
  const fake = fakeRouter()
  const keys: ReadonlyArray<Key> = Array.from({ length: 5 }, () => ({ provider: "azure", refused: false }))
  return Effect.scoped(
    Effect.gen(function* () {
      const { abandon, open, report } = yield* code.make.pipe(Effect.provide(fake.layer))
      const { id } = yield* open(Effect.succeed(planOf(keys)))
      const outcome: Outcome = { _tag: "Rejected" }
      for (const act of acts) {
        fake.state.latch.closeUnsafe()
        const before = fake.reported.size
        const reportOf = () => Effect.exit(report(id, before + 1, outcome))
        const first = yield* Effect.forkChild(Effect.suspend(reportOf), { startImmediately: true })
        const again = yield* Effect.forkChild(Effect.suspend(reportOf), { startImmediately: true })
        if (act.act === "report" && act.twice) yield* Fiber.interrupt(first)
        if (act.act === "abandon") yield* Effect.exit(abandon(id))
        if (act.act === "wait") yield* TestClock.adjust(act.millis)
        fake.state.latch.openUnsafe()
        const answers = yield* Effect.forEach([first, again], Fiber.await)
        const texts = answers.flatMap((exit) => (Exit.isSuccess(exit) ? [shown(exit.value)] : []))
        assert.strictEqual(new Set(texts).size, 1, texts.join())
        const repeated = shown(yield* Effect.exit(report(id, before + 1, outcome)))
        if (!["404", "no more"].includes(texts[0] ?? "")) assert.strictEqual(repeated, texts[0])
        assertSane(fake, texts[0]?.includes("with key") === true && repeated !== "404" ? 1 : 0)
      }
    })
  ).pipe(
    Effect.tap(() => Effect.sync(() => assertSane(fake, 0))),
    Effect.provide(TestClock.layer())
  )
}
