import { Socket } from "node:net"
import { Effect, Fiber } from "effect"
import { HttpServerRequest } from "effect/http"
import { vi } from "vitest"
import { ArrivingRequest } from "../../src/http/ArrivingRequest.ts"
import { withJsonBody } from "../../src/http/RequestDecodingLive.ts"
import type { MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { assert, it } from "../support/it.ts"

it.live("a body that completes after its time limit and still waits for memory is answered 408 (T9)", function* () {
  vi.useFakeTimers()
  yield* Effect.addFinalizer(() => Effect.sync(() => vi.useRealTimers()))
  const full = { reserve: () => ({ grow: () => false, shrink: () => {}, release: () => {} }) }
  const source = new ArrivingRequest(new Socket())
  const request = { headers: { "content-type": "application/json" }, source }
  const reading = yield* withJsonBody(
    full as unknown as MemoryBudget["Service"],
    "account",
    "body",
    Effect.die("read")
  ).pipe(
    Effect.provideService(HttpServerRequest.HttpServerRequest, request as never),
    Effect.forkChild({ startImmediately: true })
  )
  source.push(Buffer.from("{}"))
  vi.advanceTimersByTime(8_000)
  assert.isUndefined(reading.pollUnsafe(), "an incomplete body is left to Node")
  source.complete = true
  source.push(null)
  assert.isDefined(reading.pollUnsafe())
  assert.strictEqual((yield* Fiber.join(reading)).status, 408)
})
