import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Option } from "effect"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { type AuditHead, AuditLog } from "../../src/port/AuditLog.ts"
import * as Checkpointing from "../../src/service/Checkpointing.ts"
import { logLines } from "../support/process/logLines.ts"

const head = (n: number): AuditHead => ({ number: BigInt(n), last_seq: BigInt(n), hash: String(n).repeat(64) })

describe("checkpoints (SECURITY.md, Audit)", () => {
  const run = Effect.fnUntraced(function* (answers: (time: number) => ReturnType<AuditLog["Service"]["seal"]>) {
    const lines: Array<string> = []
    let asked = 0
    const log = Layer.mock(AuditLog, { seal: () => Effect.suspend(() => answers(++asked)) })
    yield* Layer.build(Checkpointing.layer.pipe(Layer.provide(log), Layer.provide(logLines(lines))))
    return { lines, asked: () => asked }
  })

  it.effect("are made every second, and the newest hash is logged once a minute", () =>
    Effect.gen(function* () {
      const { asked, lines } = yield* run((time) => Effect.succeed(Option.some(head(Math.min(time, 100)))))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(lines, [`Info Audit entries are sealed up to 1, with hash ${"1".repeat(64)}`])
      yield* TestClock.adjust("59 seconds")
      assert.deepStrictEqual([asked(), lines.length], [60, 1])
      yield* TestClock.adjust("1 second")
      assert.include(lines[1], "sealed up to 61,")
      yield* TestClock.adjust("5 minutes")
      assert.lengthOf(lines, 3, "nothing new, nothing logged")
    })
  )

  it.effect("are reported if they fail from the start", () =>
    Effect.gen(function* () {
      const { lines } = yield* run(() => Effect.fail(new ServiceUnavailable()))
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(lines, ["Warn Audit entries could not be sealed"])
    })
  )

  it.effect("are reported once if they fail, until one succeeds", () =>
    Effect.gen(function* () {
      const { asked, lines } = yield* run((time) =>
        time % 10 < 5 ? Effect.succeed(Option.none()) : Effect.fail(new ServiceUnavailable())
      )
      yield* TestClock.adjust("20 seconds")
      assert.strictEqual(asked(), 20)
      assert.deepStrictEqual(lines, Array(2).fill("Warn Audit entries could not be sealed"))
    })
  )
})
