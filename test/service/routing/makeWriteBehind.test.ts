import { Arbitrary, Clock, Deferred, Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { type Answer, DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import * as WriteBehind from "../../../src/service/routing/makeWriteBehind.ts"
import { type Edit, plantedUrl } from "../../domain/routing/plantedIn.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"
import { logLines } from "../../support/process/Recording.ts"
import { casesOf } from "../../domain/routing/propertyRuns.ts"
import { assert, describe, it } from "../../support/it.ts"

/** An implementation. */
type Code = Pick<typeof WriteBehind, "makeWriteBehind">

const real: Code = WriteBehind

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
  "hangs",
  "fails",
  "fails for 0",
  "locks 0",
  "locks 0"
] as const
type Mode = (typeof modes)[number]

type Act =
  | { readonly _tag: "add"; readonly key: number }
  | { readonly _tag: "wait"; readonly milliseconds: number }
  | { readonly _tag: "becomes"; readonly mode: Mode }

const add = Arbitrary.map(integer(0, 3), (key): Act => ({ _tag: "add", key }))
const anyAct = oneOf<Act>(
  add,
  add,
  Arbitrary.map(elementOf([1, 999, 1000, 9_000, 10_000]), (milliseconds): Act => ({ _tag: "wait", milliseconds })),
  Arbitrary.map(elementOf(modes), (mode): Act => ({ _tag: "becomes", mode }))
)
/** A code of any class, known or not; undefined for a failure without one, and null for one that no database had. */
const anyCode: Arbitrary.Arbitrary<string | undefined | null> = oneOf<string | undefined | null>(
  elementOf([
    "08006",
    "22021",
    "23514",
    "25006",
    "40P01",
    "42P01",
    "53100",
    "53200",
    "53300",
    "55000",
    "57P03",
    "XX000"
  ]),
  Arbitrary.map(
    Arbitrary.array(elementOf(Array.from("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")), { minLength: 3, maxLength: 5 }),
    (letters) => letters.join("").padStart(5, "2")
  ),
  elementOf([undefined, null, "ECONNREFUSED", "ETIMEDOUT", "EMFILE"])
)

const isFaultOfValue = (code: string | undefined | null) => code?.startsWith("22") || code?.startsWith("23") || false

interface Run {
  readonly acts: ReadonlyArray<Act>
  /** How storing fails in the modes "fails" and "fails for 0". */
  readonly code: string | undefined | null
  readonly wait: number
  /** Whether the store hangs while it is closed. */
  readonly hangsAtTheEnd: boolean
  /** The mode in which closing begins, unless the store hangs; after half a second, the store stores. */
  readonly atTheEnd: "stores" | "locks 0" | "is away"
}

const anyRun: Arbitrary.Arbitrary<Run> = Arbitrary.all({
  acts: Arbitrary.array(anyAct, { minLength: 5, maxLength: 40 }),
  code: anyCode,
  wait: elementOf([0, 10_000]),
  hangsAtTheEnd: elementOf([false, false, true]),
  atTheEnd: elementOf(["stores", "locks 0", "is away"] as const)
})

/** A store in memory that fails on request, and records its calls. */
const makeStore = Effect.fnUntraced(function* (code: Run["code"]) {
  const failure = (sqlstate: Run["code"]) =>
    sqlstate === null
      ? Effect.die(new Error("a-secret"))
      : Effect.fail(new DatabaseFailure({ kind: "SqlError", sqlstate, constraint: undefined }))
  const clock = yield* Effect.clockWith(Effect.succeed)
  let mode: Mode = "stores"
  let gate = yield* Deferred.make<true>()
  let running = 0
  let calls = 0
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
  const answer = (changes: ReadonlyArray<Change>): Answer<ReadonlyArray<Change>> => {
    if (mode === "is busy") return Effect.fail(new ServiceUnavailable())
    if (mode === "is away") return failure("57P01")
    if (mode === "hangs")
      return Effect.andThen(
        Deferred.await(gate),
        Effect.suspend(() => answer(changes))
      )
    if (mode === "fails" || (mode === "fails for 0" && changes.some(({ key }) => key === 0))) return failure(code)
    const locked = changes.filter(({ key }) => mode === "locks 0" && key === 0)
    keep(changes.filter((change) => !locked.includes(change)))
    return mode === "loses answers" ? failure("08006") : Effect.succeed(locked)
  }
  const store = (changes: ReadonlyArray<Change>) =>
    Effect.suspend(() => {
      calls += 1
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
  return { store, become, calls: () => calls, mode: () => mode, stored, writes }
})

const union = (one: Change, other: Change): Change => ({
  key: one.key,
  numbers: [...new Set([...one.numbers, ...other.numbers])]
})

const begin = Effect.fnUntraced(function* (
  implementation: Code,
  { code, ...options }: { readonly wait: number; readonly max?: number; readonly code?: Run["code"] }
) {
  const store = yield* makeStore(code)
  const scope = yield* Scope.make()
  const lines: Array<string> = []
  let lost = 0
  const clock = yield* Clock.Clock
  let sleeps = 0
  const counting = Object.assign(Object.create(clock) as Clock.Clock, {
    sleep: (...given: Parameters<Clock.Clock["sleep"]>) => {
      sleeps += 1
      return clock.sleep(...given)
    }
  })
  const add = yield* implementation
    .makeWriteBehind<Change>({
      subject: "Changes",
      accountOf: ({ key }) => (key < 100 ? "an account" : "another"),
      keyOf: ({ key }) => String(key),
      merge: union,
      store: store.store,
      batch: 2,
      max: 100,
      closing: "3 seconds",
      onLost: () => void (lost += 1),
      ...options
    })
    .pipe(Effect.provide(logLines(lines)), Effect.provideService(Clock.Clock, counting), Scope.provide(scope))
  const close = Effect.gen(function* () {
    const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
    yield* TestClock.adjust(0)
    if (store.mode() === "stores") assert.isDefined(closing.pollUnsafe(), "closing does not wait once all is stored")
    yield* TestClock.adjust("3 seconds")
    assert.isDefined(closing.pollUnsafe(), "closing takes three seconds at most")
    yield* Fiber.join(closing)
  })
  return { ...store, add, close, lines, lost: () => lost, sleeps: () => sleeps }
})

/** Plays a run, and compares the stored changes with a list of all added changes. */
const play = Effect.fnUntraced(function* (implementation: Code, run: Run) {
  const { acts, code, hangsAtTheEnd, atTheEnd, wait } = run
  const { add, become, close, lines, lost, mode, stored, writes } = yield* begin(implementation, { code, wait })
  const added = new Map<number, Set<number>>()
  /** The keys whose changes the store refused for their value, perhaps. */
  const refused = new Set<number>()
  /** The number of lost changes that the log admits. */
  const logged = () =>
    lines
      .filter((line) => line.startsWith("Error"))
      .reduce((sum, line) => sum + Number(/: (\d+) changes were/.exec(line)?.[1] ?? 1), 0)
  const assertAccounted = () => {
    assert.strictEqual(lost(), logged(), "what is lost is counted and logged")
    let missing = 0
    for (const [key, numbers] of added) {
      const isStored = [...numbers].every((number) => stored.get(key)?.has(number))
      if (!isStored) missing += 1
      if (!hangsAtTheEnd && !refused.has(key)) assert.isTrue(isStored, `what was added of key ${key}`)
    }
    assert.isAtLeast(lost(), missing, "each lost key is counted")
    if (!hangsAtTheEnd && refused.size === 0) assert.strictEqual(lost(), 0)
  }
  for (const [number, act] of acts.entries()) {
    if (act._tag === "wait") yield* TestClock.adjust(act.milliseconds)
    else if (act._tag === "becomes") {
      if (isFaultOfValue(code)) {
        if (act.mode === "fails") [0, 1, 2, 3].forEach((key) => refused.add(key))
        if (act.mode === "fails for 0") refused.add(0)
      }
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
      if (refused.has(key)) continue
      assert.sameMembers([...(stored.get(key) ?? [])], [...numbers], "once the lock is free")
    }
  }
  if (hangsAtTheEnd) {
    yield* become("hangs")
    yield* close
    return assertAccounted()
  }
  yield* become(atTheEnd)
  if (atTheEnd !== "stores") {
    add({ key: 0, numbers: [acts.length] })
    added.set(0, (added.get(0) ?? new Set()).add(acts.length))
    yield* Effect.forkChild(Effect.delay(become("stores"), 500))
  }
  yield* close
  assertAccounted()
})

describe("the write-behind queue", () => {
  it.effect.prop(
    "stores, or counts and logs as lost, every change, however the store fails and whenever it closes",
    [anyRun],
    ([run]) => play(real, run),
    casesOf(300)
  )

  const faults: ReadonlyArray<readonly [fault: string, ...edit: Edit]> = [
    ["unknown failures blame the change", "ofDatabase?.isFaultOfValue !== true", "ofDatabase === undefined"],
    ["defects blame the change", "ofDatabase?.isFaultOfValue !== true", "ofDatabase?.isFaultOfValue === false"],
    ["a later change replaces an unstored one", "other === undefined ? change : merge(other, change)", "change"],
    ["a change merged during the write is dropped", "if (waiting.get(keyOf(change)) === change) ", ""],
    ["locked changes are dropped", "!isLocked.has(change)", "true"],
    ["locked changes wait for another change", "waiting.size === 0 ? isFilled.await : ", "isFilled.await ?? "],
    ["locked changes are not retried on closing", "until: () => waiting.size === 0", "until: () => true"],
    ["a batch is dropped because of one change", "if (changes.length > 1) return", "if (false) return"],
    ["nothing is stored when it closes", "Effect.andThen(storeRest, logLeft)", "logLeft"],
    ["closing gives up at a failure", "Effect.exit(storeAll)", "storeAll"],
    ["closing has no time limit", "Effect.timeoutOption(closing)", "Effect.asSome"],
    ["closing says nothing of what is left", "Effect.andThen(storeRest, logLeft)", "storeRest"],
    ["a change during a write does not wait", "Effect.andThen(untilDue, Effect.sleep(wait))", "untilDue"]
  ]
  const runs = Effect.runSync(Arbitrary.sampleEffect(anyRun, { count: 400, seed: "planted" }))

  const isNoticed = Effect.fnUntraced(function* (...edits: ReadonlyArray<Edit>) {
    const url = new URL("../../../src/service/routing/makeWriteBehind.ts", import.meta.url)
    const repeating = "../../runtime/repeatInBackground.ts"
    const imports = { effect: import.meta.resolve("effect"), [repeating]: new URL(repeating, url).href }
    const planted = plantedUrl("../../service/routing/makeWriteBehind.ts", edits, imports)
    const code = yield* Effect.promise(async () => (await import(planted)) as Code)
    for (const run of runs) if (Exit.isFailure(yield* Effect.exit(play(code, run)))) return true
    return false
  })

  it.effect("pass the test without a fault (control)", function* () {
    assert.isFalse(yield* isNoticed())
  })

  it.effect.each(faults)("fails the test for lost or late changes if %s (control)", function* ([, ...edit]) {
    assert.isTrue(yield* isNoticed(edit))
  })

  it.effect("holds as many keys of an account as are free, and still merges changes of waiting keys", function* () {
    const { add, become, close, lines, lost, stored } = yield* begin(real, { wait: 0, max: 10 })
    yield* become("hangs")
    for (let key = 0; key < 4; key += 1) add({ key, numbers: [1] })
    yield* TestClock.adjust("1 second")
    for (const key of [4, 5, 6, 7, 8, 3, 100, 101, 102, 103]) add({ key, numbers: [2] })
    yield* become("stores")
    yield* TestClock.adjust("1 second")
    const kept = [...stored].map(([key, numbers]) => `${key}: ${[...numbers].join()}`).sort()
    assert.deepStrictEqual(kept, ["0: 1", "100: 2", "101: 2", "102: 2", "1: 1", "2: 1", "3: 1,2", "4: 2"])
    const why = "Error Changes: 5 changes were lost, because too many of their account waited"
    assert.deepStrictEqual([lost(), lines], [5, [why]])
    for (let key = 5; key < 10; key += 1) add({ key, numbers: [3] })
    yield* close
    assert.isTrue(stored.has(9), "there is room again")
  })

  it.effect("does not delay other changes while the row of one is locked, and logs nothing", function* () {
    const { add, become, close, lines, sleeps, stored } = yield* begin(real, { wait: 0 })
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

  it.effect("logs the first of consecutive failures, and each change that it drops", function* () {
    const { add, become, close, lines, stored } = yield* begin(real, { wait: 0, code: "22021" })
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
    yield* become("fails for 0")
    yield* TestClock.adjust("1 second")
    assert.isTrue(stored.get(1)?.has(2), "with the others of its batch stored")
    assert.deepStrictEqual(lines.slice(2), ["Error Changes cannot be stored, and one change was lost: SqlError 22021"])
    yield* close
  })

  it.effect.each(["53100", "53300", "08006", "55000"])(
    "sends one statement a second while the database is unavailable (%s)",
    function* (code) {
      const { add, become, calls, close } = yield* begin(real, { wait: 0, code })
      yield* become("fails")
      for (const key of [0, 1, 2, 3]) add({ key, numbers: [1] })
      yield* TestClock.adjust("9500 millis")
      assert.strictEqual(calls(), 10)
      yield* become("stores")
      yield* close
    }
  )

  it.effect("is not held up by a change that fails without saying why, and stores it in the end", function* () {
    const { add, become, close, lines, stored, writes } = yield* begin(real, { wait: 0, code: null })
    yield* become("fails for 0")
    for (const key of [0, 1, 2, 3]) add({ key, numbers: [1] })
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual([...stored.keys()].sort(), [1, 2, 3])
    const written = writes.length
    yield* TestClock.adjust("1 minute")
    assert.strictEqual(writes.length, written)
    assert.deepStrictEqual(lines, ["Warn Changes could not be stored"])
    yield* become("stores")
    yield* TestClock.adjust("1 second")
    assert.isTrue(stored.has(0))
    yield* close
  })
})
