import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Effect, Exit, Fiber, Scheduler } from "effect"
import { TestClock } from "effect/testing"
import { NotFound, ServiceUnavailable } from "../../src/domain/Errors.ts"
import { AccountId } from "../../src/domain/Identifiers.ts"
import { OpenRoutes } from "../../src/gateway/OpenRoutes.ts"
import { CurrentDeadline } from "../../src/runtime/Deadline.ts"
import { makeMemoryBudget, MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { PoolsUnavailable } from "../../src/service/routing/RouterErrors.ts"
import { fakeRouter, planOf } from "./fakeRouter.ts"
import { assert, describe, it } from "../support/it.ts"

describe("routes that gateways open over HTTP", () => {
  /** Runs `use` on routes with a memory budget of `bytes`, all of which must be free at the end. `held` returns the reserved bytes. */
  const within = <Step extends Effect.Effect<unknown, unknown>>(
    bytes: number,
    use: (
      routes: typeof OpenRoutes.Service,
      held: (use?: "route" | "spare") => number,
      router: ReturnType<typeof fakeRouter>
    ) => Generator<Step, void, never>
  ) =>
    Effect.suspend(() => {
      const budget = makeMemoryBudget(bytes)
      const router = fakeRouter()
      const held = (use: "route" | "spare" = "route") => budget.held[use]
      const used = Effect.scoped(
        Effect.flatMap(OpenRoutes.make, (routes) => Effect.gen(() => use(routes, held, router)))
      )
      return Effect.tap(used, () =>
        Effect.sync(() => assert.deepStrictEqual([held(), held("spare"), router.leased.size], [0, 0, 0]))
      ).pipe(Effect.provideService(MemoryBudget, budget), Effect.provide(router.layer))
    })
  const plan = Effect.succeed(planOf(1))
  const another = AccountId.make("00000000-0000-7000-8000-00000000000b")
  const planOfAnother = Effect.succeed(planOf(1, { account_id: another }))
  const planWith = (user_id: string, targets = 1) =>
    Effect.map(plan, ({ request, ...planned }) => {
      const [target = assert.fail()] = request.targets
      return {
        ...planned,
        request: { ...request, user_id, targets: [target, ...Array.from({ length: targets - 1 }, () => target)] }
      }
    })
  const two = Effect.succeed(planOf(2))
  const inTime = Effect.provideService(CurrentDeadline, { until: 0 })

  it.effect("reserve memory for their account, and leave other accounts their share (T9)", () =>
    within(1_000_000, function* ({ abandon, open, report }, held) {
      const flood = yield* Effect.forEach(Array.from({ length: 2_000 }), () => Effect.exit(inTime(open(plan))))
      const opened = flood.flatMap((exit) => (Exit.isSuccess(exit) ? [exit.value.id] : []))
      assert.isAbove(opened.length, 100)
      assert.isBelow(opened.length, 2_000)
      assert.instanceOf(yield* Effect.flip(inTime(open(plan))), ServiceUnavailable)
      const others = yield* Effect.forEach(Array.from({ length: 50 }), () => open(planOfAnother))
      for (const { id } of others) yield* report(id, 1, { _tag: "Succeeded" })
      const [oldest = "", newest = ""] = [opened[0], opened.at(-1)]
      assert.instanceOf(yield* Effect.flip(report(oldest, 1, { _tag: "Succeeded" })), NotFound)
      yield* abandon(newest)
      for (const id of opened) yield* Effect.ignore(abandon(id))
      assert.strictEqual(held(), 0)
    })
  )

  /** Collects garbage in a later task: weak references stay alive within the current one. */
  const collected = Effect.promise(async () => {
    setFlagsFromString("--expose-gc")
    const collect = runInNewContext("gc") as () => void
    await new Promise((resolve) => setImmediate(resolve))
    collect()
  })

  it.effect("keep their last answer for a minute after they end, but not their plan (T3)", () =>
    within(10_000_000, function* ({ open, report }, held) {
      const opened = Effect.suspend(() => {
        const planned = planOf(1_000)
        const ofPlan = new WeakRef(planned.steps[999] ?? assert.fail())
        return Effect.map(open(Effect.succeed(planned)), ({ id }) => ({ id, ofPlan }))
      })
      const { id, ofPlan } = yield* opened
      assert.isBelow(held(), 5_000, "a route reserves memory for its request, not for its plan")
      yield* collected
      assert.isDefined(ofPlan.deref(), "control")
      // Nothing expires at the whole seconds when routes are ended unasked.
      yield* TestClock.adjust(30_500)
      const answer = yield* report(id, 1, { _tag: "Succeeded" })
      assert.deepStrictEqual(answer, { next: undefined, retry_at: null, outcome: { _tag: "Succeeded" } })
      assert.deepStrictEqual([held(), held("spare")], [0, 880], "the last answer is in evictable memory")
      yield* collected
      assert.isUndefined(ofPlan.deref())
      assert.instanceOf(yield* Effect.flip(report(id, 2, { _tag: "Succeeded" })), NotFound)
      yield* TestClock.adjust(59_999)
      assert.deepStrictEqual(yield* report(id, 1, { _tag: "Rejected" }), answer)
      yield* TestClock.adjust(1)
      assert.instanceOf(yield* Effect.flip(report(id, 1, { _tag: "Succeeded" })), NotFound)
      assert.strictEqual(held("spare"), 0)
    })
  )

  it.effect("reserve memory by the length of their request, and more for every eight attempts (T9)", () =>
    within(1_000_000, function* ({ abandon, open, report }, held) {
      const { id } = yield* open(planWith("u".repeat(255)))
      const short = held()
      const long = yield* open(planWith("u".repeat(100_255)))
      assert.strictEqual(held() - short, short + 200_000)
      yield* abandon(long.id)
      const wide = yield* open(planWith("u".repeat(255), 3))
      assert.strictEqual(held() - short, short + 2 * 256)
      yield* abandon(wide.id)
      yield* abandon(id)
      const many = yield* open(Effect.succeed(planOf(100)))
      const before = held()
      for (let n = 1; n < 100; n++) {
        const { next } = yield* report(many.id, n, { _tag: "Rejected" })
        assert.strictEqual(next?.n, n + 1)
        assert.strictEqual(held() - before, 8 * 384 * Math.floor(n / 8))
      }
      yield* abandon(many.id)
      const refusing = yield* open(Effect.succeed(planOf(100, { isRefused: (n) => n > 0 && n < 51 })))
      for (const n of [1, 2]) yield* report(refusing.id, n, { _tag: "Rejected" })
      assert.strictEqual(held() - before, (52 - 8) * 384, "for those whose keys were refused, too")
      yield* abandon(refusing.id)
      assert.strictEqual(held(), 0)
    })
  )

  it.effect(
    "give a report and its concurrent repetition the same answer, wherever handling the first pauses (T3)",
    () =>
      within(1_000_000, function* ({ open, report }) {
        for (let operations = 3; operations < 20; operations += 1) {
          let loseAnswer = () => {}
          const { id } = yield* open(Effect.succeed(planOf(3)), (lose) => (loseAnswer = lose))
          const reporting = Effect.provideService(
            report(id, 1, { _tag: "Rejected" }),
            Scheduler.MaxOpsBeforeYield,
            operations
          )
          const lost = Effect.sync(() => loseAnswer())
          const [first, , again] = yield* Effect.all([reporting, lost, reporting], { concurrency: "unbounded" })
          assert.strictEqual(first.next?.n, 2)
          assert.deepStrictEqual(again, first)
          yield* report(id, 2, { _tag: "Succeeded" })
        }
      })
  )

  it.effect("accept reports of the open attempt only, and end if a report asks for it, repeated or not (T3)", () =>
    within(1_000_000, function* ({ open, report }, _held, { outcomes }) {
      const { id } = yield* open(two)
      for (const n of [0, 2]) {
        assert.propertyVal(yield* Effect.flip(report(id, n, { _tag: "Rejected" })), "_tag", "AttemptNotOpen")
      }
      const over = { next: undefined, retry_at: null, outcome: { _tag: "Rejected" } }
      assert.strictEqual((yield* report(id, 1, { _tag: "Rejected" })).next?.n, 2)
      for (const _ of ["first", "again"]) {
        assert.deepStrictEqual<unknown>(yield* report(id, 1, { _tag: "Succeeded" }, false), over)
      }
      const other = yield* open(two)
      assert.deepStrictEqual<unknown>(yield* report(other.id, 1, { _tag: "Rejected" }, false), over)
      assert.deepStrictEqual(outcomes, ["Rejected", "Abandoned", "Rejected"])
    })
  )

  it.effect("open no attempt if they are abandoned while its key is being leased", () =>
    within(1_000_000, function* ({ abandon, open, report }, _held, { leased, outcomes, state }) {
      const { id } = yield* open(two)
      state.latch.closeUnsafe()
      const reporting = yield* Effect.forkChild(report(id, 1, { _tag: "Rejected" }), { startImmediately: true })
      yield* abandon(id)
      yield* state.latch.open
      const answer = yield* Fiber.join(reporting)
      assert.deepStrictEqual<unknown>(answer, { next: undefined, retry_at: null, outcome: { _tag: "Rejected" } })
      assert.deepStrictEqual(outcomes, ["Rejected", "Abandoned"])
      assert.strictEqual(leased.size, 0)
    })
  )

  it.effect("give repetitions of the last report the same answer, even while the time to retry is awaited", () =>
    within(1_000_000, function* ({ abandon, open, report }, _held, { state }) {
      const { id } = yield* open(plan)
      state.latch.closeUnsafe()
      state.retryAt = 7
      const reports = yield* Effect.forEach([true, true, false], (goesOn) =>
        Effect.forkChild(report(id, 1, { _tag: "Rejected" }, goesOn), { startImmediately: true })
      )
      for (const late of [report(id, 2, { _tag: "Rejected" }), abandon(id)]) {
        assert.instanceOf(yield* Effect.flip(late as Effect.Effect<unknown, unknown>), NotFound)
      }
      yield* state.latch.open
      const answer = { next: undefined, retry_at: 7, outcome: { _tag: "Rejected" } }
      assert.deepStrictEqual<unknown>(yield* Effect.forEach(reports, Fiber.join), [answer, answer, answer])
    })
  )

  it.effect("end ten minutes after they opened, with or without further requests", () =>
    within(9_000, function* ({ abandon, open, report }, held, { outcomes }) {
      // Nothing expires at the whole seconds when routes are ended unasked.
      yield* TestClock.adjust(30_500)
      const asks: ReadonlyArray<(id: string) => Effect.Effect<unknown, unknown>> = [
        (id) => report(id, 1, { _tag: "Succeeded" }),
        abandon,
        () => open(plan)
      ]
      const answers: Array<unknown> = []
      for (const ask of asks) {
        const { id } = yield* inTime(open(two))
        yield* TestClock.adjust(10_000)
        const later = yield* inTime(open(two))
        yield* TestClock.adjust(589_999)
        assert.strictEqual((yield* report(id, 1, { _tag: "Rejected" })).next?.n, 2)
        yield* TestClock.adjust(1)
        const asked = Effect.match(ask(id), {
          onFailure: (error) => error instanceof NotFound,
          onSuccess: () => "opened"
        })
        answers.push(yield* inTime(asked))
        yield* TestClock.adjust(10_000)
        assert.instanceOf(yield* Effect.flip(abandon(later.id)), NotFound)
      }
      assert.deepStrictEqual(answers, [true, true, "opened"])
      yield* TestClock.adjust(601_000)
      assert.strictEqual(held(), 0)
      const ended = ["Rejected", "Abandoned", "Abandoned"] as const
      assert.deepStrictEqual(outcomes, [...ended, ...ended, ...ended, "Abandoned"])
    })
  )

  it.effect("open no attempt that needs more memory while memory is full", () =>
    within(300_000, function* ({ abandon, open, report }, held) {
      const { id } = yield* open(Effect.succeed(planOf(20)))
      const alone = held()
      const large = Effect.map(planWith("x".repeat(145_000)), (planned) => ({
        ...planned,
        request: { ...planned.request, account_id: another }
      }))
      const other = yield* open(large)
      for (let n = 1; n < 8; n++) yield* report(id, n, { _tag: "Rejected" })
      const before = held()
      for (const _ of ["first", "again"]) {
        assert.instanceOf(yield* Effect.flip(inTime(report(id, 8, { _tag: "Rejected" }))), PoolsUnavailable)
      }
      assert.strictEqual(held(), before)
      yield* abandon(other.id)
      assert.strictEqual(held(), alone, "a report that failed reserves nothing later")
      const again = yield* open(large)
      const waiting = yield* Effect.forkChild(report(id, 8, { _tag: "Rejected" }), { startImmediately: true })
      yield* abandon(again.id)
      assert.strictEqual((yield* Fiber.join(waiting)).next?.n, 9)
      assert.strictEqual(held(), alone + 8 * 384)
      yield* abandon(id)
    })
  )

  it.effect("are opened or abandoned each time that effect runs, not when the effect is created", () =>
    within(1_000_000, function* ({ abandon, open, report }, held) {
      const opening = open(plan)
      assert.strictEqual(held(), 0)
      const { id } = yield* opening
      const other = yield* opening
      assert.notStrictEqual(id, other.id)
      const [reporting, leaving] = [report(id, 1, { _tag: "Succeeded" }), abandon(id)]
      yield* leaving
      assert.instanceOf(yield* Effect.flip(reporting), NotFound)
      assert.instanceOf(yield* Effect.flip(leaving), NotFound)
      yield* abandon(other.id)
    })
  )

  it.effect("keep only their last answer in memory once their plan has no key left", () =>
    within(1_000_000, function* ({ open, report }, held) {
      const { id } = yield* open(plan)
      const answer = yield* report(id, 1, { _tag: "Rejected" })
      assert.deepStrictEqual([held(), held("spare")], [0, 1088])
      assert.deepStrictEqual(yield* report(id, 1, { _tag: "Rejected" }), answer)
    })
  )

  it.effect("keep their last answers in groups of one second, each until a minute after its newest answer", () =>
    within(1_000_000, function* ({ open, report }, held) {
      yield* TestClock.adjust(30_500)
      const ids: Array<string> = []
      const spares: Array<number> = []
      for (const wait of [999, 1, 0]) {
        const { id } = yield* open(plan)
        yield* report(id, 1, { _tag: "Succeeded" })
        ids.push(id)
        spares.push(held("spare"))
        yield* TestClock.adjust(wait)
      }
      assert.deepStrictEqual(spares, [880, 880 + 112, 880 + 112 + 880])
      const kept = Effect.forEach(ids, (id) => Effect.isSuccess(report(id, 1, { _tag: "Succeeded" })))
      assert.deepStrictEqual(yield* kept, [true, true, true])
      yield* TestClock.adjust(59_998)
      assert.deepStrictEqual(yield* kept, [true, true, true])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* kept, [false, false, true])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* kept, [false, false, false])
    })
  )

  it.effect("have last answers evicted when a new route needs the memory", () =>
    within(5_000, function* ({ open, report }, held) {
      const ended = yield* open(plan)
      yield* report(ended.id, 1, { _tag: "Succeeded" })
      assert.isAbove(held("spare"), 0)
      const next = yield* open(planOfAnother)
      assert.strictEqual(held("spare"), 0)
      assert.instanceOf(yield* Effect.flip(report(ended.id, 1, { _tag: "Succeeded" })), NotFound)
      const answer = yield* report(next.id, 1, { _tag: "Succeeded" })
      assert.deepStrictEqual(yield* report(next.id, 1, { _tag: "Succeeded" }), answer, "others are kept afterwards")
    })
  )

  it.effect("have last answers evicted oldest first, at most 4,096 at a time", () =>
    within(1_000_000, function* ({ open, report }, held) {
      const ids: Array<string> = []
      for (let n = 0; n < 5_000; n++) {
        const { id } = yield* open(plan)
        yield* report(id, 1, { _tag: "Succeeded" })
        ids.push(id)
      }
      const spare = held("spare")
      yield* open(planWith("x".repeat(288_000)))
      assert.isAbove(held("spare"), 0.15 * spare)
      const [oldest = "", newest = ""] = [ids[4_095], ids[4_096]]
      assert.instanceOf(yield* Effect.flip(report(oldest, 1, { _tag: "Succeeded" })), NotFound)
      assert.isUndefined((yield* report(newest, 1, { _tag: "Succeeded" })).next)
    })
  )

  it.effect("reserve no memory if they fail to open or have no attempt", () =>
    within(1_000_000, function* ({ open, report }, held, { state }) {
      const opened = yield* open(Effect.succeed({ ...planOf(0), retry_at: 5 }))
      assert.deepInclude(opened, { next: undefined, retry_at: 5, expires_at: 600_000 })
      assert.instanceOf(yield* Effect.flip(report(opened.id, 0, { _tag: "Succeeded" })), NotFound)
      const refused = yield* open(Effect.succeed(planOf(1, { isRefused: () => true })))
      assert.deepInclude(refused, { next: undefined, retry_at: null })
      assert.instanceOf(yield* Effect.flip(open(plan, (lose) => lose())), ServiceUnavailable)
      state.away = true
      assert.instanceOf(yield* Effect.flip(open(plan)), PoolsUnavailable)
      assert.deepStrictEqual([held(), held("spare")], [0, 0])
    })
  )

  it.effect("accept a report again after its answer failed, and count its outcome once", () =>
    within(1_000_000, function* ({ abandon, open, report }, _held, { outcomes, state }) {
      const { id } = yield* open(two)
      state.away = true
      for (const _ of ["first", "again"]) {
        assert.instanceOf(yield* Effect.flip(report(id, 1, { _tag: "Rejected" })), PoolsUnavailable)
      }
      state.away = false
      assert.strictEqual((yield* report(id, 1, { _tag: "Rejected" })).next?.n, 2)
      const over = { next: undefined, retry_at: null }
      for (const _ of ["first", "again"]) {
        const answer = yield* report(id, 2, { _tag: "Succeeded" })
        assert.deepStrictEqual(answer, { ...over, outcome: { _tag: "Succeeded" } })
      }
      const left = yield* open(two)
      yield* abandon(left.id)
      const last = yield* open(plan)
      assert.deepStrictEqual(yield* report(last.id, 1, { _tag: "Rejected" }), {
        ...over,
        outcome: { _tag: "Rejected" }
      })
      const steps = [{ _tag: "Shared", provider: "azure" }] as const
      const shared = yield* open(Effect.succeed({ ...planOf(0), steps, isEmpty: false }))
      yield* report(shared.id, 1, { _tag: "Rejected" })
      assert.deepStrictEqual(
        outcomes,
        ["Rejected", "Succeeded", "Abandoned", "Rejected"],
        "shared steps have no lease, so no outcome of one"
      )
    })
  )

  it.effect("end if the answer to their opening or to a report cannot be written (T12)", () =>
    within(1_000_000, function* ({ open, report }, held) {
      let giveUp = () => {}
      const { id } = yield* open(plan, (lost) => (giveUp = lost))
      giveUp()
      yield* Effect.yieldNow
      assert.instanceOf(yield* Effect.flip(report(id, 1, { _tag: "Succeeded" })), NotFound)
      assert.strictEqual(held(), 0)
      const reported = yield* open(two, (lost) => (giveUp = lost))
      yield* report(reported.id, 1, { _tag: "Rejected" })
      giveUp()
      yield* Effect.yieldNow
      yield* report(reported.id, 2, { _tag: "Rejected" })
    })
  )
})
