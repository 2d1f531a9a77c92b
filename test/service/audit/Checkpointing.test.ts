import { Effect, Layer, Option, References } from "effect"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { type AuditHead, AuditLog } from "../../../src/port/AuditLog.ts"
import * as Checkpointing from "../../../src/service/audit/Checkpointing.ts"
import { logLines } from "../../support/process/Recording.ts"
import { assert, describe, it } from "../../support/it.ts"

const head = (n: number): AuditHead => ({ number: BigInt(n), last_seq: BigInt(n), hash: String(n).repeat(64) })

describe("checkpoints (SECURITY.md, Audit)", () => {
  const run = Effect.fnUntraced(function* (
    answers: (time: number) => ReturnType<AuditLog["Service"]["seal"]>,
    waiting: () => number = () => 0
  ) {
    const lines: Array<string> = []
    let asked = 0
    const log = Layer.mock(AuditLog, {
      seal: () => Effect.suspend(() => answers(++asked)),
      countUnsealed: () => Effect.sync(waiting)
    })
    yield* Layer.build(
      Checkpointing.layer.pipe(
        Layer.provide(log),
        Layer.provide(logLines(lines)),
        Layer.provide(Layer.succeed(References.MinimumLogLevel, "Debug"))
      )
    )
    return { lines, asked: () => asked }
  })

  it.effect("are made every second, and the newest hash is logged once a minute", function* () {
    const { asked, lines } = yield* run((time) => Effect.succeed(Option.some(head(Math.min(time, 100)))))
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(lines, [`Debug Audit entries are sealed up to 1, with hash ${"1".repeat(64)}`])
    yield* TestClock.adjust("59 seconds")
    assert.deepStrictEqual([asked(), lines.length], [60, 1])
    yield* TestClock.adjust("1 second")
    assert.include(lines[1], "sealed up to 61,")
    yield* TestClock.adjust("5 minutes")
    assert.lengthOf(lines, 3, "nothing new, nothing logged")
  })

  it.effect("log a warning when they stop while entries wait, and another when they stop again", function* () {
    let waiting = 0
    const { lines } = yield* run(
      (time) => Effect.succeed(time < 600 ? Option.some(head(1)) : Option.some(head(2))),
      () => waiting
    )
    const warnings = () => lines.filter((line) => line.startsWith("Warn"))
    yield* TestClock.adjust("3 minutes")
    assert.deepStrictEqual(warnings(), [], "nothing waits")
    waiting = 7
    yield* TestClock.adjust("5 minutes")
    assert.lengthOf(warnings(), 1)
    assert.include(warnings()[0], "7 after 1: a transaction that does not end is in the way")
    yield* TestClock.adjust("5 minutes")
    assert.lengthOf(warnings(), 2)
  })

  it.effect("do not warn if entries wait at every other count only", function* () {
    let count = 0
    const { lines } = yield* run(
      () => Effect.succeed(Option.some(head(1))),
      () => ++count % 2
    )
    yield* TestClock.adjust("10 minutes")
    assert.isAbove(count, 5)
    assert.deepStrictEqual(
      lines.filter((line) => line.startsWith("Warn")),
      []
    )
  })

  it.effect("log a warning when they begin to fail, and another when they fail again after a success", function* () {
    const { asked, lines } = yield* run((time) =>
      time % 10 < 5 ? Effect.succeed(Option.none()) : Effect.fail(new ServiceUnavailable())
    )
    yield* TestClock.adjust("20 seconds")
    assert.strictEqual(asked(), 20)
    assert.deepStrictEqual(lines, Array(2).fill("Warn Audit entries could not be sealed"))
  })
})
