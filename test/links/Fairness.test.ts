import { Duration, Effect, Fiber } from "effect"
import { holdOpen, untilWaiting } from "../support/database/transactions.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { json } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { openLink } from "./browser.ts"

/** At most 10 requests are in progress, and 70 of an account wait. */
const small = TestService.withDatabase({
  poolSize: 2,
  queue: 80,
  statementTimeout: Duration.seconds(25),
  deadline: Duration.seconds(28)
})

const sent = 70

layerLive(small)("a queue of 80 (F9)", (it) => {
  it.effect("serves another account before most of one link's keys that do not open", function* () {
    const { sql } = yield* TestService
    const [tenant, other] = [yield* TestService.newTenant, yield* TestService.newTenant]
    const ids = [createdId(yield* other.create(minimal)), createdId(yield* other.create(minimal))].reverse()
    const { ask } = yield* openLink(tenant, { purpose: "manage" })
    const release = yield* holdOpen(sql, "SELECT 1 FROM links FOR UPDATE")
    const statuses: Array<number> = []
    const sealed_key = { enc: "AAAA", ciphertext: "AAAA" }
    const flood = yield* Effect.forkChild(
      Effect.forEach(
        Array.from({ length: sent }),
        () =>
          Effect.map(ask("POST", "/byok", { provider: "openai", name: null, sealed_key }), ({ status }) =>
            statuses.push(status)
          ),
        { concurrency: "unbounded" }
      )
    )
    yield* untilWaiting(sql, 2)
    yield* Effect.sleep("500 millis")
    const body = JSON.stringify({ provider: minimal.provider, ids })
    const order = yield* Effect.forkChild(
      other.send({ method: "PUT", path: "/api/v1/byok/order", headers: [json], body })
    )
    yield* Effect.sleep("500 millis")
    yield* release
    assert.strictEqual((yield* Fiber.join(order)).status, 200)
    assert.isBelow(statuses.length, sent / 2, "of the flood")
    yield* Fiber.join(flood)
    assert.deepStrictEqual(new Set(statuses), new Set([409]), "all of it was tried (control)")
  })
})
