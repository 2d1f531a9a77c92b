import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { makeProgress, StandardStreams } from "../../src/cli/Output.ts"
import { assert, describe, it } from "../support/it.ts"

interface Rewrapped {
  readonly rewrapped: number
  readonly total: number
}
const line = ({ rewrapped, total }: Rewrapped) => `rewrapped ${rewrapped} of ${total} credentials, 0 failed`
const part = ({ rewrapped, total }: Rewrapped) => rewrapped / total

const progressOn = (stderr: { readonly isTTY?: boolean; readonly columns?: number }, written: Array<string>) =>
  Effect.provideService(makeProgress(line, part), StandardStreams, {
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: { ...stderr, write: (text) => written.push(text) }
  })

const tellAll = (screen: { readonly isTTY?: boolean; readonly columns?: number }) =>
  Effect.gen(function* () {
    const written: Array<string> = []
    const progress = yield* progressOn(screen, written)
    for (let rewrapped = 0; rewrapped <= 200; rewrapped += 10) {
      yield* progress.report({ rewrapped, total: 200 })
      yield* TestClock.adjust("99 millis")
    }
    yield* progress.end
    return written
  })

describe("the progress line of a rewrap", () => {
  it.effect("is printed at most once a second, and at the end, if there is no terminal", function* () {
    assert.deepStrictEqual(
      yield* tellAll({}),
      [0, 110, 200].map((count) => `rewrapped ${count} of 200 credentials, 0 failed\n`)
    )
  })

  it.effect("is redrawn in place on a terminal, within its width, and ends with a line break", function* () {
    for (const columns of [20, 40, 60, 80, 200]) {
      const written = yield* tellAll({ isTTY: true, columns })
      const bars = written.slice(0, -1)
      assert.isAbove(bars.length, 5)
      for (const bar of bars) {
        assert.match(bar, /^\r[^\r\n]*\u001b\[K$/)
        assert.isBelow(bar.length - "\r\u001b[K".length, columns)
      }
      assert.strictEqual(written.at(-1), "\n")
    }
    assert.deepStrictEqual(yield* tellAll({ isTTY: true, columns: 0 }), yield* tellAll({ isTTY: true, columns: 80 }))
    const [first = "", ...others] = yield* tellAll({ isTTY: true, columns: 80 })
    assert.include(first, `[${" ".repeat(36)}] rewrapped 0 of 200`)
    assert.include(others.at(-2), `[${"#".repeat(34)}] rewrapped 200 of 200`)
  })

  it.effect("is not printed if no progress was reported", function* () {
    const written: Array<string> = []
    const { end } = yield* progressOn({ isTTY: true }, written)
    yield* end
    assert.deepStrictEqual(written, [])
  })
})
