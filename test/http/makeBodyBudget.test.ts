import { assert, it } from "@effect/vitest"
import { Arbitrary, Effect, Exit, Fiber, Schema } from "effect"
import { makeBodyBudget } from "../../src/http/makeBodyBudget.ts"

const limits = { account: 10, total: 25 }

const Step = Schema.Struct({
  account: Schema.Literals(["a", "b", "c", "d"]),
  bytes: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 12 })),
  /** What the request does; `leave` ends the oldest that stays. */
  kind: Schema.Literals(["stays", "ends at once", "dies", "leave"])
})

it.effect.prop(
  "a budget of bytes admits a request exactly if it fits what the requests in progress leave, however those end",
  [Arbitrary.array(Arbitrary.schema(Step), { maxLength: 60 })],
  ([steps]) =>
    Effect.gen(function* () {
      const within = makeBodyBudget(limits)
      const held: Array<{ account: string; bytes: number; fiber: Fiber.Fiber<unknown, unknown> }> = []
      const bytesOf = (own: typeof held) => own.reduce((sum, { bytes }) => sum + bytes, 0)
      for (const { account, bytes, kind } of steps) {
        if (kind === "leave") {
          const oldest = held.shift()
          if (oldest !== undefined) yield* Fiber.interrupt(oldest.fiber)
          continue
        }
        const fits =
          bytes === 0 ||
          (bytesOf(held.filter((one) => one.account === account)) + bytes <= limits.account &&
            bytesOf(held) + bytes <= limits.total)
        let admitted = false
        const request = Effect.suspend((): Effect.Effect<unknown> => {
          admitted = true
          return kind === "stays" ? Effect.never : kind === "dies" ? Effect.die("no") : Effect.void
        })
        const fiber = yield* Effect.forkChild(within(account, bytes, request), { startImmediately: true })
        assert.strictEqual(admitted, fits)
        if (fits && kind === "stays") held.push({ account, bytes, fiber })
        else assert.strictEqual(Exit.isSuccess(yield* Fiber.await(fiber)), fits && kind !== "dies")
      }
    })
)
