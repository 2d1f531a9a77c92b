import { Arbitrary, Clock, Deferred, Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import * as WriteBehind from "../../../src/service/routing/makeWriteBehind.ts"
import { type Edit, plantedUrl } from "../../domain/routing/plantedIn.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"
import { logLines } from "../../support/process/Recording.ts"
import { casesOf } from "../../domain/routing/propertyRuns.ts"
import { assert, describe, it } from "../../support/it.ts"
import { Random, Simulation } from "../../world/Simulation.ts"

type Code = typeof WriteBehind

/** Changes of a key: the numbers of those that were merged. */
interface Change {
  readonly key: number
  readonly numbers: ReadonlyArray<number>
}

const modes = [
  "stores",
  "stores",
  "is busy",
  "is away",
  "loses answers",
  "hangs",
  "refuses 0",
  "locks 0",
  "locks 0"
] as const
type Mode = (typeof modes)[number] | "throws"

type Act =
  | { readonly _tag: "add"; readonly key: number }
  | { readonly _tag: "wait"; readonly milliseconds: number }
  | { readonly _tag: "becomes"; readonly mode: Mode }

const add = Arbitrary.map(integer(0, 4), (key): Act => ({ _tag: "add", key }))
const anyAct = oneOf<Act>(
  add,
  add,
  Arbitrary.map(elementOf([1, 999, 1000, 9_000, 10_000]), (milliseconds): Act => ({ _tag: "wait", milliseconds })),
  Arbitrary.map(elementOf(modes), (mode): Act => ({ _tag: "becomes", mode }))
)
interface Run {
  readonly acts: ReadonlyArray<Act>
  readonly wait: number
  /** Whether the store hangs while it is closed, or a lock becomes free meanwhile. */
  readonly hangsAtTheEnd: boolean
  readonly locksAtTheEnd: boolean
}

const anyRun: Arbitrary.Arbitrary<Run> = Arbitrary.all({
  acts: Arbitrary.array(anyAct, { minLength: 5, maxLength: 40 }),
  wait: elementOf([0, 10_000]),
  hangsAtTheEnd: elementOf([false, false, true]),
  locksAtTheEnd: elementOf([false, true])
})

const failureOf = (sqlstate: string) => new DatabaseFailure({ kind: "SqlError", sqlstate, constraint: undefined })

/** A store in memory that fails on request, and records its calls. */
const makeStore = Effect.gen(function* () {
  const clock = yield* Effect.clockWith(Effect.succeed)
  let mode: Mode = "stores"
  let gate = yield* Deferred.make<true>()
  let running = 0
  const stored = new Map<number, Set<number>>()
  const writes: Array<{ readonly at: number; readonly changes: ReadonlyArray<Change> }> = []
  const keep = (changes: ReadonlyArray<Change>) => {
    writes.push({ at: clock.currentTimeMillisUnsafe(), changes })
    for (const { key, numbers } of changes) {
      const known = stored.get(key) ?? new Set()
      for (const number of numbers) known.add(number)
      stored.set(key, known)
    }
  }
  const answer = (changes: ReadonlyArray<Change>): Effect.Effect<ReadonlyArray<Change>, ServiceUnavailable> => {
    if (mode === "is busy") return Effect.fail(new ServiceUnavailable())
    if (mode === "is away") return Effect.die(failureOf("57P01"))
    if (mode === "throws") return Effect.die(new Error("a-secret"))
    if (mode === "hangs")
      return Effect.andThen(
        Deferred.await(gate),
        Effect.suspend(() => answer(changes))
      )
    if (mode === "refuses 0" && changes.some(({ key }) => key === 0)) return Effect.die(failureOf("22021"))
    const locked = changes.filter(({ key }) => mode === "locks 0" && key === 0)
    keep(changes.filter((change) => !locked.includes(change)))
    return mode === "loses answers" ? Effect.die(failureOf("08006")) : Effect.succeed(locked)
  }
  const store = (changes: ReadonlyArray<Change>) =>
    Effect.suspend(() => {
      running += 1
      assert.strictEqual(running, 1, "one statement at a time")
      assert.include([1, 2], changes.length, "a batch")
      assert.strictEqual(new Set(changes.map(({ key }) => key)).size, changes.length, "a key once")
      return Effect.ensuring(
        answer(changes),
        Effect.sync(() => void (running -= 1))
      )
    })
  const become = Effect.fnUntraced(function* (next: Mode) {
    mode = next
    yield* Deferred.succeed(gate, true)
    gate = yield* Deferred.make<true>()
  })
  return { store, become, mode: () => mode, stored, writes }
})

const union = (one: Change, other: Change): Change => ({
  key: one.key,
  numbers: [...new Set([...one.numbers, ...other.numbers])]
})

const begin = Effect.fnUntraced(function* (
  { makeWriteBehind }: Code,
  options: { readonly wait: number; readonly max?: number }
) {
  const store = yield* makeStore
  const scope = yield* Scope.make()
  const lines: Array<string> = []
  const clock = yield* Clock.Clock
  let sleeps = 0
  const counting = Object.assign(Object.create(clock) as Clock.Clock, {
    sleep: (...given: Parameters<Clock.Clock["sleep"]>) => {
      sleeps += 1
      return clock.sleep(...given)
    }
  })
  const add = yield* makeWriteBehind<Change>({
    subject: "Changes",
    keyOf: ({ key }) => String(key),
    merge: union,
    store: store.store,
    batch: 2,
    max: 100,
    ...options
  }).pipe(Effect.provide(logLines(lines)), Effect.provideService(Clock.Clock, counting), Scope.provide(scope))
  const close = Effect.gen(function* () {
    const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
    yield* TestClock.adjust(0)
    if (store.mode() === "stores") assert.isDefined(closing.pollUnsafe(), "closing does not wait once all is stored")
    yield* TestClock.adjust("1 second")
    assert.isDefined(closing.pollUnsafe(), "closing takes a second at most")
    yield* Fiber.join(closing)
  })
  return { ...store, add, close, lines, sleeps: () => sleeps }
})

/** Plays a run, and compares the stored changes with a list of all added changes. */
const play = Effect.fnUntraced(function* (code: Code, { acts, hangsAtTheEnd, locksAtTheEnd, wait }: Run) {
  const { add, become, close, lines, mode, stored, writes } = yield* begin(code, { wait })
  const added = new Map<number, Set<number>>()
  let hasRefused = false
  for (const [number, act] of acts.entries()) {
    if (act._tag === "wait") yield* TestClock.adjust(act.milliseconds)
    else if (act._tag === "becomes") {
      hasRefused ||= act.mode === "refuses 0"
      yield* become(act.mode)
    } else {
      added.set(act.key, (added.get(act.key) ?? new Set()).add(number))
      add({ key: act.key, numbers: [number] })
    }
  }
  assert.notInclude(lines.join(), "unexpected", "an assertion of the store failed")
  const times = new Map<number, number>()
  for (const { at, changes } of writes) {
    for (const { key } of changes) {
      assert.isTrue(at - (times.get(key) ?? -wait) >= wait, `key ${key} is written again at ${at}`)
      times.set(key, at)
    }
  }
  if (mode() === "locks 0") {
    yield* become("stores")
    yield* TestClock.adjust(1000 + wait)
    for (const [key, numbers] of added) {
      if (key === 0 && hasRefused) continue
      assert.sameMembers([...(stored.get(key) ?? [])], [...numbers], "once the lock is free")
    }
  }
  if (hangsAtTheEnd) {
    yield* become("hangs")
    return yield* close
  }
  if (locksAtTheEnd) {
    yield* become("locks 0")
    add({ key: 0, numbers: [acts.length] })
    added.set(0, (added.get(0) ?? new Set()).add(acts.length))
    yield* Effect.forkChild(Effect.delay(become("stores"), 500))
  } else yield* become("stores")
  yield* close
  for (const [key, numbers] of added) {
    if (key === 0 && hasRefused) continue
    assert.sameMembers([...(stored.get(key) ?? [])], [...numbers], `what was added of key ${key}`)
  }
})

describe("the write-behind queue", () => {
  it.effect.prop(
    "stores every added change, merged by key, however often the store fails and whenever it closes",
    [anyRun],
    ([run]) => play(WriteBehind, run),
    casesOf(300)
  )

  const faults: ReadonlyArray<readonly [fault: string, ...edit: Edit]> = [
    ["a failed batch is dropped", "changes.forEach(enqueue)", ""],
    ["returned changes replace later ones", "other === undefined ? change : merge(other, change)", "change"],
    ["locked changes are dropped", "locked.forEach(enqueue)", "locked"],
    ["locked changes wait for another change", "waiting.size === 0 ? isFilled.await : ", "isFilled.await ?? "],
    ["locked changes are not retried on closing", "Effect.interruptible(storeRest)", "Effect.interruptible(storeAll)"],
    ["a batch is dropped because of one change", "if (changes.length > 1) return", "if (false) return"],
    ["nothing is stored when it closes", "Effect.interruptible(storeRest)", "Effect.void"],
    ["closing has no time limit", "Effect.timeout(Effect.interruptible(storeRest), closingTimeout)", "storeAll"],
    ["a change during a write does not wait", "Effect.andThen(untilFilled, Effect.sleep(wait))", "untilFilled"]
  ]
  const runs = Effect.runSync(Arbitrary.sampleEffect(anyRun, { count: 200, seed: "planted" }))

  it.effect.each(faults)("fails the test for lost or late changes if %s (control)", function* ([, ...edit]) {
    const url = new URL("../../../src/service/routing/makeWriteBehind.ts", import.meta.url)
    const names = ["../../domain/Errors.ts", "../../port/DatabaseFailure.ts"]
    const imports = Object.fromEntries([
      ["effect", import.meta.resolve("effect")],
      ...names.map((name) => [name, new URL(name, url).href] as const)
    ])
    const planted = plantedUrl("../../service/routing/makeWriteBehind.ts", [edit], imports)
    const code = yield* Effect.promise(() => import(planted) as Promise<Code>)
    for (const run of runs) if (Exit.isFailure(yield* Effect.exit(play(code, run)))) return
    assert.fail("no run noticed")
  })

  it.effect("holds at most its limit of keys, and still merges changes of waiting keys", function* () {
    const { add, become, close, stored } = yield* begin(WriteBehind, { wait: 0, max: 5 })
    yield* become("hangs")
    for (let key = 0; key < 4; key += 1) add({ key, numbers: [1] })
    yield* TestClock.adjust("1 second")
    for (const key of [4, 5, 6, 7, 8, 3]) add({ key, numbers: [2] })
    yield* become("stores")
    yield* TestClock.adjust("1 second")
    const kept = [...stored].map(([key, numbers]) => `${key}: ${[...numbers].join()}`).sort()
    assert.deepStrictEqual(kept, ["0: 1", "1: 1", "2: 1", "3: 1,2", "4: 2"])
    add({ key: 8, numbers: [3] })
    yield* close
    assert.isTrue(stored.has(8), "there is room again")
  })

  it.effect("does not delay other changes while the row of one is locked, and logs nothing", function* () {
    const { add, become, close, lines, sleeps, stored } = yield* begin(WriteBehind, { wait: 0 })
    yield* become("locks 0")
    add({ key: 0, numbers: [1] })
    for (const key of [1, 2, 3]) {
      add({ key, numbers: [1] })
      yield* TestClock.adjust(1)
      assert.isTrue(stored.has(key), `${key} waits for nothing`)
    }
    yield* become("stores")
    yield* TestClock.adjust(999)
    assert.isTrue(stored.has(0), "within a second after the lock is free")
    const slept = sleeps()
    yield* TestClock.adjust("1 minute")
    assert.strictEqual(sleeps(), slept, "sleeps only while changes wait")
    assert.deepStrictEqual(lines, [])
    yield* close
  })

  it("stores the waiting changes whenever its scope closes", () => {
    for (let seed = 1300; seed < 1400; seed += 1) {
      const simulation = new Simulation(seed)
      const random = new Random(seed)
      const stored: Array<number> = []
      const store = (changes: ReadonlyArray<number>) => Effect.sync(() => (stored.push(...changes), []))
      const options = { subject: "Changes", keyOf: String, merge: (one: number) => one, wait: 0, batch: 2, max: 100 }
      const closed = Effect.gen(function* () {
        const scope = yield* Scope.make()
        const add = yield* Scope.provide(WriteBehind.makeWriteBehind<number>({ ...options, store }), scope)
        add(1)
        for (let n = random.below(12); n > 0; n -= 1) yield* Effect.yieldNow
        yield* Scope.close(scope, Exit.void)
      })
      assert.isTrue(Exit.isSuccess(simulation.run(closed)))
      assert.include(stored, 1, `seed ${seed}`)
    }
  })

  it.effect("logs the first of consecutive failures, and each change that it drops", function* () {
    const { add, become, close, lines, stored } = yield* begin(WriteBehind, { wait: 0 })
    const failing = "Warn Changes could not be stored"
    for (const _ of ["once", "again"]) {
      yield* become("is away")
      add({ key: 1, numbers: [1] })
      yield* TestClock.adjust("1 minute")
      yield* become("stores")
      yield* TestClock.adjust("1 minute")
    }
    assert.deepStrictEqual(lines, [failing, failing])
    yield* become("hangs")
    for (const key of [2, 0, 1]) add({ key, numbers: [2] })
    yield* become("refuses 0")
    yield* TestClock.adjust("1 second")
    assert.isTrue(stored.get(1)?.has(2), "with the others of its batch stored")
    yield* become("throws")
    add({ key: 1, numbers: [3] })
    yield* TestClock.adjust("1 second")
    const dropped = "Error Changes cannot be stored, and one was dropped:"
    assert.deepStrictEqual(lines.slice(2), [`${dropped} SqlError 22021`, `${dropped} unexpected`])
    yield* close
  })
})
