import { Effect } from "effect"
import { jsonInTurns } from "../../src/http/Handlers.ts"
import { assert, describe, it } from "../support/it.ts"

/** The most characters of one turn, apart from its last value. */
const turnLength = 65_536

/** Runs an effect that writes values, and returns how many characters of them each turn of the event loop wrote. */
const charactersByTurn = <A, E>(
  length: number,
  count: number,
  write: (values: ReadonlyArray<object>) => Effect.Effect<A, E>
) =>
  Effect.gen(function* () {
    const written: Array<number> = []
    let ofTurn = 0
    const endTurn = () => {
      written.push(ofTurn)
      ofTurn = 0
    }
    let next = setImmediate(function turn() {
      endTurn()
      next = setImmediate(turn)
    })
    const text = "x".repeat(length)
    const toJSON = () => {
      ofTurn += length
      return text
    }
    yield* Effect.ensuring(
      write(Array.from({ length: count }, () => ({ toJSON }))),
      Effect.sync(() => clearImmediate(next))
    )
    endTurn()
    return written.filter((characters) => characters > 0)
  })

describe("the JSON of a long list (T9)", () => {
  const sizes = [
    [100, 100_000],
    [100_000, 100],
    [7, 65_536]
  ] as const

  it.effect.each(sizes)(
    "is written in turns of the event loop: %d values of %d characters",
    function* ([count, length]) {
      const turns = yield* charactersByTurn(length, count, (values) => jsonInTurns("[", values, "]"))
      assert.isAtMost(Math.max(...turns), turnLength + length)
      assert.strictEqual(
        turns.reduce((sum, characters) => sum + characters, 0),
        count * length
      )
    }
  )

  it.effect("takes one turn without them (control)", function* () {
    const atOnce = (values: ReadonlyArray<object>) => Effect.sync(() => JSON.stringify(values))
    assert.deepStrictEqual(yield* charactersByTurn(100, 100_000, atOnce), [10_000_000])
  })

  it.effect.each(sizes)("is that of the whole list: %d values of %d characters", function* ([count, length]) {
    const values = Array.from({ length: count }, (_, n) => ({ n, text: "😀".repeat(length / 4) }))
    const { body } = yield* jsonInTurns("[", values, "]")
    assert(body._tag === "Uint8Array")
    assert.strictEqual(Buffer.from(body.body).toString(), JSON.stringify(values))
  })
})
