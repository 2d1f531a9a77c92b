import { Arbitrary, Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { limits } from "../../../src/crypto/WrapBudget.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import type { RewrapProgress } from "../../../src/service/keyring/Rotation.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import * as MemoryStore from "../../support/memory/Memory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import type { Ports } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { inOrder, keysOf, type Made, openedWith, rotationWith, sealUnder } from "../../support/keys/rotating.ts"
import { assert, describe, itWith } from "../../support/it.ts"

const rotated = ringOf("new", "old")
const unhurried = 1_000_000

const named = Effect.map(Memory, ({ credentials }) => Array.from(credentials.values(), ({ sealed }) => sealed.kek_id))
const wraps = (kek_id: string) => Effect.map(Memory, ({ keks }) => keks.get(kek_id)?.wraps ?? 0)

/** Changes a stored row by SQL. */
const alter = Effect.fnUntraced(function* ({ id }: Made, change: "context" | "wrapped_dek" | "kek_id" | "format") {
  const { credentials } = yield* Memory
  const row = credentials.get(id)
  if (row === undefined) return assert.fail("no such row")
  const { credential, sealed } = row
  const flipped = (bytes: Uint8Array) => bytes.map((byte, index) => (index === 0 ? byte ^ 2 : byte))
  const altered = {
    context: { ...row, credential: { ...credential, disabled: !credential.disabled } },
    wrapped_dek: { ...row, sealed: { ...sealed, wrapped_dek: flipped(sealed.wrapped_dek) } },
    kek_id: { ...row, sealed: { ...sealed, kek_id: "lost" } },
    format: { ...row, sealed: { ...sealed, sealed: flipped(sealed.sealed) } }
  }[change]
  credentials.set(id, altered)
  return altered
})

/** Lets a rewrap run to its end. */
const finished = <A, E, R>(rewrap: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const running = yield* Effect.forkChild(rewrap)
    yield* TestClock.adjust("1 hour")
    return yield* Fiber.join(running)
  })

const onMemory = itWith(MemoryStore.layer)

describe("a rewrap (T10; docs/keys.md, Rotate the keyring)", () => {
  onMemory.prop(
    "moves every credential to the primary key, whatever the batch and rate, and counts the wraps",
    [
      Arbitrary.all({
        under: Arbitrary.all({ old: integer(0, 6), older: integer(0, 6), new: integer(0, 3) }),
        batch: integer(1, 8),
        rate: elementOf([1, 3, 500])
      })
    ],
    function* ([{ batch, rate, under }]) {
      const made = [
        ...(yield* sealUnder(ringOf("old"), under.old)),
        ...(yield* sealUnder(ringOf("older"), under.older)),
        ...(yield* sealUnder(ringOf("new"), under.new))
      ]
      const { rewrap } = yield* rotationWith(ringOf("new", "old", "older"), { ...limits, block: 1 })
      const count = under.old + under.older
      const done = yield* finished(rewrap({ batch, rate }))
      assert.deepStrictEqual(done, { rewrapped: count, left: 0, failed: [] })
      assert.isTrue((yield* named).every((kek_id) => kek_id === "new"))
      assert.deepStrictEqual(yield* openedWith(ringOf("new"), made), keysOf(made))
      assert.strictEqual(yield* wraps("new"), count)
    }
  )

  onMemory("continues after an interruption, and wraps no credential twice", function* () {
    const made = yield* sealUnder(ringOf("old"), 9)
    const { rewrap } = yield* rotationWith(rotated, { ...limits, block: 1 })
    const middle = yield* Deferred.make<true>()
    const onProgress = ({ rewrapped }: RewrapProgress) =>
      rewrapped < 6 ? Effect.void : Effect.andThen(Deferred.succeed(middle, true), Effect.never)
    const running = yield* Effect.forkChild(rewrap({ batch: 3, rate: unhurried, onProgress }))
    yield* Effect.forkChild(TestClock.adjust("1 minute"))
    yield* Deferred.await(middle)
    yield* Fiber.interrupt(running)
    assert.strictEqual((yield* named).filter((kek_id) => kek_id === "old").length, 3)
    assert.deepStrictEqual(yield* openedWith(rotated, made), keysOf(made), "in the middle everything opens")

    const { rewrap: again } = yield* rotationWith(rotated, { ...limits, block: 1 })
    assert.deepStrictEqual(yield* again({ rate: unhurried }), { rewrapped: 3, left: 0, failed: [] })
    assert.deepStrictEqual(yield* openedWith(ringOf("new"), made), keysOf(made))
    assert.strictEqual(yield* wraps("new"), 9)
  })

  onMemory.each([
    { change: "context", reason: "the credential or its sealed key was altered" },
    { change: "wrapped_dek", reason: "the credential or its sealed key was altered" },
    { change: "kek_id", reason: "key lost is not in the keyring" },
    { change: "format", reason: "this version does not support its sealing format" }
  ] as const)(
    "reports a row with altered $change by id and reason, leaves it as it is and goes on",
    function* ({ change, reason }) {
      const made = yield* sealUnder(ringOf("old"), 7)
      const broken = made.filter((_, index) => index % 3 === 0)
      const rows = yield* Effect.forEach(broken, (one) => alter(one, change))
      const { rewrap } = yield* rotationWith(rotated)
      const { failed, ...counts } = yield* finished(rewrap({ batch: 2, rate: unhurried }))
      assert.deepStrictEqual(counts, { rewrapped: 4, left: 3 })
      assert.deepStrictEqual(
        failed,
        inOrder(broken).map(({ id }) => ({ id, reason }))
      )
      const { credentials } = yield* Memory
      assert.deepStrictEqual(
        broken.map(({ id }) => credentials.get(id)),
        rows
      )
      const whole = made.filter((one) => !broken.includes(one))
      assert.deepStrictEqual(yield* openedWith(ringOf("new"), whole), keysOf(whole))
    }
  )

  onMemory("never rewraps more credentials a second than requested", function* () {
    yield* sealUnder(ringOf("old"), 20)
    const { rewrap } = yield* rotationWith(rotated)
    const running = yield* Effect.forkChild(rewrap({ rate: 4 }))
    for (let second = 0; second < 5; second++) {
      yield* TestClock.adjust(second === 0 ? 0 : 999)
      assert.strictEqual((yield* named).filter((kek_id) => kek_id === "new").length, 4 * Math.max(1, second))
      if (second > 0) yield* TestClock.adjust(1)
      assert.strictEqual((yield* named).filter((kek_id) => kek_id === "new").length, 4 * (second + 1))
    }
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(yield* Fiber.join(running), { rewrapped: 20, left: 0, failed: [] })
  })

  onMemory("reports its progress after every batch", function* () {
    const made = yield* sealUnder(ringOf("old"), 5)
    const last = inOrder(made).at(-1)
    if (last !== undefined) yield* alter(last, "context")
    const told: Array<RewrapProgress> = []
    const { rewrap } = yield* rotationWith(rotated)
    const onProgress = (progress: RewrapProgress) => Effect.sync(() => void told.push(progress))
    yield* finished(rewrap({ batch: 2, rate: unhurried, onProgress }))
    assert.deepStrictEqual(told, [
      { rewrapped: 2, failed: 0, total: 5 },
      { rewrapped: 4, failed: 0, total: 5 },
      { rewrapped: 4, failed: 1, total: 5 }
    ])
  })

  onMemory("rewraps credentials that are stored while it runs, but ends after a few passes", function* () {
    yield* sealUnder(ringOf("old"), 2)
    const { rewrap } = yield* rotationWith(rotated)
    const stores = yield* Effect.context<Memory | Ports>()
    const sealMore = () => Effect.asVoid(Effect.orDie(Effect.provide(sealUnder(ringOf("old"), 1), stores)))
    const done = yield* finished(rewrap({ rate: unhurried, onProgress: sealMore }))
    assert.deepStrictEqual(done, { rewrapped: 6, left: 1, failed: [] })
  })

  onMemory("counts its wraps to within one batch, even if some fail and others are stored while it runs", function* () {
    const made = yield* sealUnder(ringOf("old"), 4)
    const [first] = inOrder(made)
    if (first !== undefined) yield* alter(first, "context")
    const { rewrap } = yield* rotationWith(rotated, { ...limits, block: 1 })
    assert.strictEqual((yield* finished(rewrap({ batch: 1, rate: unhurried }))).rewrapped, 3)
    assert.strictEqual(yield* wraps("new"), 3)

    const stores = yield* Effect.context<Memory | Ports>()
    let more = 9
    const onProgress = () =>
      more-- > 0 ? Effect.asVoid(Effect.orDie(Effect.provide(sealUnder(ringOf("old"), 1), stores))) : Effect.void
    yield* sealUnder(ringOf("old"), 3)
    const { rewrapped } = yield* finished(rewrap({ batch: 1, rate: unhurried, onProgress }))
    assert.isAbove(rewrapped, 5)
    const counted = yield* wraps("new")
    assert.isAtLeast(counted, 3 + rewrapped)
    assert.isAtMost(counted, 3 + rewrapped + 1)
  })

  onMemory("counts each wrap, even if the store requests two for one credential", function* () {
    yield* sealUnder(ringOf("old"), 3)
    const registry = yield* KekRegistry
    const twice = KekRegistry.of({
      ...registry,
      rewrapBatch: (batch, rewrap) =>
        registry.rewrapBatch(batch, (sealed, context) => {
          rewrap(sealed, context)
          return rewrap(sealed, context)
        })
    })
    const { rewrap } = yield* Effect.provideService(rotationWith(rotated, { ...limits, block: 1 }), KekRegistry, twice)
    assert.strictEqual((yield* rewrap({ rate: unhurried })).rewrapped, 3)
    assert.strictEqual(yield* wraps("new"), 6)
  })

  onMemory("retries failed credentials in its next pass, a second later", function* () {
    const made = yield* sealUnder(ringOf("old"), 2)
    const [broken] = made
    if (broken === undefined) return assert.fail("nothing made")
    yield* alter(broken, "context")
    const { rewrap } = yield* rotationWith(rotated)
    const stores = yield* Effect.context<Memory | Ports>()
    let mended = false
    const mend = () =>
      Effect.gen(function* () {
        if (mended) return
        mended = true
        yield* alter(broken, "context")
        yield* sealUnder(ringOf("old"), 1)
      }).pipe(Effect.provide(stores), Effect.orDie)
    const running = yield* Effect.forkChild(rewrap({ rate: unhurried, onProgress: mend }))
    yield* TestClock.adjust(900)
    assert.isUndefined(running.pollUnsafe())
    yield* TestClock.adjust(200)
    assert.deepStrictEqual(yield* Fiber.join(running), { rewrapped: 3, left: 0, failed: [] })
  })

  onMemory("counts failures towards its rate, and reports no empty batch", function* () {
    const made = yield* sealUnder(ringOf("old"), 4)
    for (const one of made) yield* alter(one, "context")
    const told: Array<number> = []
    const { rewrap } = yield* rotationWith(rotated)
    const onProgress = ({ failed }: RewrapProgress) => Effect.sync(() => void told.push(failed))
    const running = yield* Effect.forkChild(rewrap({ rate: 2, onProgress }))
    yield* TestClock.adjust(900)
    assert.deepStrictEqual(told, [2])
    yield* TestClock.adjust("1 minute")
    assert.deepStrictEqual(told, [2, 4])
    assert.strictEqual((yield* Fiber.join(running)).left, 4)
  })

  onMemory("stops at the limit of wraps, and keeps the credentials that it has rewrapped", function* () {
    const made = yield* sealUnder(ringOf("old"), 6)
    const { rewrap } = yield* rotationWith(rotated, { block: 1, warn: 10, refuse: 4 })
    const refused = yield* finished(Effect.flip(rewrap({ batch: 2, rate: unhurried })))
    assert.strictEqual(refused._tag, "SealingRefused")
    assert.strictEqual((yield* named).filter((kek_id) => kek_id === "new").length, 4)
    assert.deepStrictEqual(yield* openedWith(rotated, made), keysOf(made))
  })
})

describe("the status of the keyring", () => {
  onMemory(
    "shows role, credentials and wraps of each key, and lets only a used key without credentials be retired",
    function* () {
      const { keks } = yield* Memory
      const used = (kek_id: string, count: number) =>
        Effect.sync(() => {
          const kek = keks.get(kek_id)
          if (kek !== undefined) kek.wraps = count
        })
      yield* rotationWith(ringOf("gone"))
      yield* sealUnder(ringOf("lost"), 2)
      yield* sealUnder(ringOf("old"), 1)
      const { rewrap, status } = yield* rotationWith(ringOf("new", "pending", "old"), { ...limits, block: 1 })
      yield* used("old", 5)
      yield* used("gone", 3)
      const others = [
        { kek_id: "gone", role: "retired", credentials: 0, wraps: 3, may_be_retired: false },
        { kek_id: "lost", role: "missing", credentials: 2, wraps: 0, may_be_retired: false }
      ]
      const pending = { kek_id: "pending", role: "pending", credentials: 0, wraps: 0, may_be_retired: false }
      assert.deepEqual(yield* status(), [
        { kek_id: "new", role: "primary", credentials: 0, wraps: 0, may_be_retired: false },
        pending,
        { kek_id: "old", role: "decrypt-only", credentials: 1, wraps: 5, may_be_retired: false },
        ...others
      ])
      yield* finished(rewrap({ rate: unhurried }))
      const after = yield* status()
      assert.deepEqual(after.slice(1), [
        pending,
        { kek_id: "old", role: "decrypt-only", credentials: 0, wraps: 5, may_be_retired: true },
        ...others
      ])
      assert.strictEqual(after[0]?.credentials, 1)
    }
  )

  onMemory(
    "shows a key with credentials as decrypt-only, even without counted wraps, and a retired one as retired",
    function* () {
      const { keks } = yield* Memory
      yield* sealUnder(ringOf("named"), 1)
      const { status } = yield* rotationWith(ringOf("new", "named", "gone"))
      const gone = keks.get("gone") ?? assert.fail("not registered")
      keks.set("gone", { ...gone, wraps: 3, retired: true })
      assert.deepStrictEqual(
        (yield* status()).map(({ kek_id, may_be_retired, role }) => [kek_id, role, may_be_retired]),
        [
          ["new", "primary", false],
          ["named", "decrypt-only", false],
          ["gone", "retired", false]
        ]
      )
    }
  )

  onMemory("leaves out the keys of a foreign keyring that was started once", function* () {
    yield* sealUnder(ringOf("kek"), 1)
    yield* rotationWith(ringOf("foreign"))
    const { status } = yield* rotationWith(ringOf("kek"))
    assert.isDefined((yield* Memory).keks.get("foreign"))
    assert.deepStrictEqual(
      (yield* status()).map(({ kek_id, role }) => [kek_id, role]),
      [["kek", "primary"]]
    )
  })
})
