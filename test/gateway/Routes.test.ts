import { IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import { Effect, Fiber, Latch, Layer, Schema } from "effect"
import { NewRoute } from "../../src/contract/GatewayApi.ts"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { OpenRoutes } from "../../src/gateway/OpenRoutes.ts"
import { makeRoutes } from "../../src/gateway/Routes.ts"
import { CurrentDeadline } from "../../src/runtime/Deadline.ts"
import { makeMemoryBudget, MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import type { PlannedRequest } from "../../src/service/routing/PlannedRequest.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { changing } from "../support/service/asTenant.ts"
import { assert, describe, it } from "../support/it.ts"
import { fakeRouter, planOf } from "./fakeRouter.ts"
import { own } from "./socket.ts"
import { TokensOnly } from "../../src/service/tokens/Tokens.ts"

const newResponse = () => new ServerResponse(new IncomingMessage(new Socket()))

const inTime = Effect.provideService(CurrentDeadline, { until: 0 })

/**
 * Opens routes by one plan, with a memory budget of 1,500,000 bytes, all of which must be free at the end. Verdicts are
 * encoded once `encoding` opens; `count` returns how many were begun.
 */
const within = <Step extends Effect.Effect<unknown, unknown>>(
  planned: Partial<PlannedRequest>,
  use: (
    open: (response: ServerResponse) => Effect.Effect<string, unknown>,
    held: () => number,
    encoding: Latch.Latch,
    count: () => number
  ) => Generator<Step, void, never>,
  explain = true
) =>
  Effect.suspend(() => {
    const budget = makeMemoryBudget(1_500_000)
    const encoding = Latch.makeUnsafe(false)
    let begun = 0
    const router = changing(Router, (router) => ({
      ...router,
      plan: () => Effect.succeed({ ...planOf(1), members: 1000, ...planned }),
      verdicts: (_plan, show) => {
        begun += 1
        const shared = { position: null, removed: [] }
        return encoding.whenOpen(Effect.sync(() => show([{ provider: "azure", credentials: [], shared }])))
      }
    }))
    const { account_id, model } = planOf(1).request
    const asked = Schema.decodeUnknownSync(NewRoute)({ account_id, model, targets: [own], explain })
    const used = Effect.flatMap(makeRoutes, ({ open }) =>
      Effect.gen(() =>
        use(
          (response) => Effect.map(open(asked, response), ({ body }) => body),
          () => budget.held.gateway,
          encoding,
          () => begun
        )
      )
    ).pipe(Effect.provide(Layer.provideMerge(OpenRoutes.layer, Layer.provide(router, fakeRouter().layer))))
    return Effect.tap(used, () =>
      Effect.sync(() => assert.deepStrictEqual([budget.held.gateway, budget.held.route], [0, 0]))
    ).pipe(Effect.provideService(MemoryBudget, budget), Effect.provideService(TokensOnly, false))
  })

const refused = planOf(1, { isRefused: () => true })

describe("the verdicts in the answer that opens a route", () => {
  it.effect.each([
    ["if they were asked for", {}, true],
    ["if the plan is empty", { isEmpty: true }, false],
    ["if no key of the plan could be leased", { steps: refused.steps }, false]
  ] as const)(
    "reserve memory for the whole pool, then for their text until the response closes, %s (T9)",
    ([, planned, explain]) =>
      within(
        planned,
        function* (open, held, encoding) {
          const response = newResponse()
          const opening = yield* Effect.forkChild(open(response), { startImmediately: true })
          assert.strictEqual(held(), 1_000_000)
          yield* encoding.open
          const [, text = ""] = /"providers":(\[.+\])\}\}$/.exec(yield* Fiber.join(opening)) ?? []
          assert.strictEqual(held(), 4 * text.length)
          assert.isAbove(held(), 0)
          response.emit("close")
          assert.strictEqual(held(), 0)
        },
        explain
      )
  )

  it.effect("are refused with 503, without being encoded, if memory for the pool can never be reserved (T9)", () =>
    within({ members: 1501 }, function* (open, _held, encoding, count) {
      yield* encoding.open
      assert.instanceOf(yield* Effect.flip(open(newResponse())), ServiceUnavailable)
      assert.strictEqual(count(), 0)
    })
  )

  it.effect("wait for memory that others have, until their deadline or their client leaves (T9)", () =>
    within({}, function* (open, held, encoding, count) {
      const [first, second] = [newResponse(), newResponse()]
      const opening = yield* Effect.forkChild(open(first), { startImmediately: true })
      const leaving = yield* Effect.forkChild(open(newResponse()), { startImmediately: true })
      const late = yield* Effect.forkChild(inTime(open(newResponse())), { startImmediately: true })
      const waiting = yield* Effect.forkChild(open(second), { startImmediately: true })
      assert.deepStrictEqual([held(), count()], [1_000_000, 1])
      yield* Fiber.interrupt(leaving)
      assert.instanceOf(yield* Effect.flip(Fiber.join(late)), ServiceUnavailable)
      yield* encoding.open
      const { length } = yield* Fiber.join(opening)
      assert.strictEqual((yield* Fiber.join(waiting)).length, length)
      assert.strictEqual(count(), 2)
      first.emit("close")
      second.emit("close")
    })
  )

  it.effect("release their memory if the client leaves while they are encoded (T9)", () =>
    within({}, function* (open, held, encoding) {
      const opening = yield* Effect.forkChild(open(newResponse()), { startImmediately: true })
      assert.strictEqual(held(), 1_000_000)
      yield* Fiber.interrupt(opening)
      assert.strictEqual(held(), 0)
      const left = newResponse()
      const unaware = yield* Effect.forkChild(open(left), { startImmediately: true })
      left.destroy()
      yield* encoding.open
      yield* Effect.exit(Fiber.join(unaware))
      assert.strictEqual(held(), 0)
    })
  )
})
