import { EventEmitter } from "node:events"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Option } from "effect"
import { makeSum } from "../../src/management/makeSum.ts"
import type { Snapshot } from "../../src/telemetry/Snapshot.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"

/** A process that counts, and may end. */
class Counting extends EventEmitter<{ exit: [] }> {
  count = 0
  dead = false
  readonly isDead = () => this.dead
  readonly end = () => {
    this.dead = true
    this.emit("exit")
  }
  readonly snapshot = (): Snapshot => [
    { family: "byok.keyring.reloads", attributes: {}, reading: { type: "counter", value: this.count } },
    { family: "byok.db.queue.depth", attributes: {}, reading: { type: "gauge", value: 1 } }
  ]
}

const valueOf = (snapshot: Snapshot, wanted: string) =>
  snapshot.flatMap(({ family, reading }) => (family === wanted && reading.type !== "histogram" ? [reading.value] : []))

const steps = Arbitrary.array(
  Arbitrary.all({ act: elementOf(["count", "end", "read", "read one silent"] as const), which: integer(0, 2) }),
  { maxLength: 40 }
)

describe("the sum of several processes", () => {
  it.prop("never shrinks, whichever of them end, are replaced or do not answer", [steps], ([steps]) => {
    const sum = makeSum()
    const processes = Array.from({ length: 3 }, () => new Counting())
    let before = 0
    for (const { act, which } of steps) {
      const process = processes[which] ?? assert.fail("no such process")
      if (act === "count") process.count += 1
      else if (act === "end") {
        process.end()
        processes[which] = new Counting()
      } else {
        const found = processes.map((one) => {
          const silent = act === "read one silent" && one === process
          return [one, silent ? Option.none() : Option.some(one.snapshot())] as const
        })
        const [now = 0] = valueOf(sum(found, []), "byok.keyring.reloads")
        assert.isAtLeast(now, before)
        before = now
      }
    }
  })

  it("holds what an ended process had counted when it was last read, and no gauge of it", () => {
    const sum = makeSum()
    const [one, other] = [new Counting(), new Counting()]
    one.count = 3
    other.count = 4
    const read = (...processes: ReadonlyArray<Counting>) =>
      sum(
        processes.map((process) => [process, Option.some(process.snapshot())] as const),
        []
      )
    const both = read(one, other)
    assert.deepStrictEqual([valueOf(both, "byok.keyring.reloads"), valueOf(both, "byok.db.queue.depth")], [[7], [2]])
    one.count = 100
    one.end()
    const left = read(other)
    assert.deepStrictEqual([valueOf(left, "byok.keyring.reloads"), valueOf(left, "byok.db.queue.depth")], [[7], [1]])
    const silent = sum([[other, Option.none()]], [])
    assert.deepStrictEqual([valueOf(silent, "byok.keyring.reloads"), valueOf(silent, "byok.db.queue.depth")], [[7], []])
    other.end()
    assert.deepStrictEqual(valueOf(read(), "byok.keyring.reloads"), [7], "of both that have ended")
  })
})
