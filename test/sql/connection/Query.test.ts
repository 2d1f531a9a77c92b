import { Arbitrary, Effect, Exit, Fiber } from "effect"
import { ConnectionError, SqlError, UnknownError } from "effect/sql/SqlError"
import { TestClock } from "effect/testing"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { type Query, retryingWith } from "../../../src/sql/connection/Query.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"

const failing = (code: string) => new SqlError({ reason: new ConnectionError({ cause: { code }, message: "m" }) })
const lasting = (code: string) => new SqlError({ reason: new UnknownError({ cause: { code }, message: "m" }) })

/** A query that fails a few times before it succeeds, and how often it was made. */
const queryOf = (failures: number, error: SqlError) => {
  const made = { times: 0 }
  const query: Query<string> = Effect.suspend(() => {
    made.times += 1
    return made.times <= failures ? Effect.fail(error) : Effect.succeed("answer")
  })
  return { made, query }
}

const never = () => Number.POSITIVE_INFINITY
const passing = ["40P01", "40001", "ECONNREFUSED", "ECONNRESET", "08006", "57P01", "57P02", "57P03", "25006"]

describe("a query", () => {
  it.effect.prop(
    "is retried after each transient failure until it succeeds (F5)",
    [integer(0, 40), elementOf(passing)],
    function* ([failures, code]) {
      const { made, query } = queryOf(failures, failing(code))
      const running = yield* Effect.forkChild(retryingWith(() => 0)(query, never))
      yield* TestClock.adjust(100 * failures)
      assert.strictEqual(yield* Fiber.join(running), "answer")
      assert.strictEqual(made.times, failures + 1)
    }
  )

  it.effect("is retried after a failed transaction whose rollback failed too (F5)", function* () {
    const { made, query } = queryOf(1, failing("ECONNRESET"))
    const transaction = Effect.onError(query, () => Effect.die(failing("ECONNRESET")))
    assert.strictEqual(yield* retryingWith(() => 0)(transaction, never), "answer")
    assert.strictEqual(made.times, 2)
    const bug = yield* Effect.exit(retryingWith(() => 0)(Effect.die("a bug"), never))
    assert.deepStrictEqual(bug, Exit.die("a bug"))
  })

  it.effect.each(["23505", "42P01", "57014", "53300", "28P01"])("is not retried after SQLSTATE %s", function* (code) {
    const { made, query } = queryOf(1, lasting(code))
    const failure = yield* Effect.flip(retryingWith(() => 0)(query, never))
    assert.instanceOf(failure, DatabaseFailure)
    assert.deepStrictEqual([failure.sqlstate, made.times], [code, 1])
  })

  it.effect("is not retried beyond its deadline, and fails with its last cause (F5, F10)", function* () {
    const { made, query } = queryOf(1_000, failing("57P01"))
    const until = performance.now() + 50
    const failure = yield* Effect.flip(retryingWith(() => 0)(query, () => until))
    assert.deepStrictEqual([failure.sqlstate, made.times], ["57P01", 2])
  })

  it.effect.prop(
    "says that it was not sent if no attempt got a connection (D11)",
    [
      Arbitrary.array(elementOf(["ECONNREFUSED", "ENOTFOUND", "57P03", "ECONNRESET", "57P01"]), { maxLength: 4 }),
      elementOf(["53300", "57014"])
    ],
    function* ([codes, last]) {
      let made = 0
      const query: Query<string> = Effect.suspend(() => Effect.fail(failing([...codes, last][made++] ?? last)))
      const running = yield* Effect.forkChild(Effect.flip(retryingWith(() => 0)(query, never)))
      yield* TestClock.adjust(100 * codes.length)
      const { isUnsent } = yield* Fiber.join(running)
      const sent = [...codes, last].some((code) => ["ECONNRESET", "57P01", "57014"].includes(code))
      assert.strictEqual(isUnsent === true, !sent)
    }
  )

  it.effect("is neither acknowledged nor retried if its commit may not be replicated", function* () {
    let notices = 0
    const { made, query } = queryOf(0, failing("08006"))
    const noticed = Effect.tap(query, () => Effect.sync(() => (notices += 1)))
    const failure = yield* Effect.flip(retryingWith(() => notices)(noticed, never))
    assert.deepStrictEqual([failure.kind, made.times], ["UnknownOutcome", 1])
  })
})
