import { randomBytes } from "node:crypto"
import { assert } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import { formatApiKey } from "../../src/port/ApiKey.ts"
import { lockTable, waitingForLock } from "../support/database/transactions.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { get } from "../support/http/HttpProbe.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { layerLive } from "../support/process/layerLive.ts"

const small = TestService.layerWith({
  settings: ({ database, ...settings }) => ({
    ...settings,
    database: { ...database, queue: 50, statementTimeout: Duration.seconds(25), deadline: Duration.seconds(28) }
  })
})

layerLive(small)("a queue of 50 (F9)", (it) => {
  it.effect("keeps room for a known account while 60 unknown tokens wait for their look-ups", () =>
    Effect.gen(function* () {
      const { sql, url } = yield* TestService
      const tenant = yield* TestService.tenant
      const id = createdId(yield* tenant.create(minimal))
      const unlock = yield* lockTable(sql, "api_keys")
      let refused = 0
      const junk = yield* Effect.forEach(Array.from({ length: 60 }), () => {
        const token = formatApiKey(randomBytes(32), true)
        return Effect.forkChild(
          Effect.tap(get(url, token, id), ({ status }) => Effect.sync(() => (refused += status === 503 ? 1 : 0)))
        )
      })
      yield* eventually(
        "one or two look-ups wait for the lock, as the tokens happened to arrive",
        Effect.map(waitingForLock(sql), (n) => n > 0)
      )
      yield* eventually(
        "the flood has used up its own budget",
        Effect.sync(() => refused === 60 - 12)
      )
      const known = yield* Effect.forkChild(tenant.get(id))
      yield* Effect.sleep("100 millis")
      yield* unlock
      assert.strictEqual((yield* Fiber.join(known)).status, 200)
      const answers = yield* Effect.forEach(junk, Fiber.join)
      assert.strictEqual(answers.filter(({ status }) => status === 401).length, 12)
    })
  )

  it.effect("is not entered by a token whose checksum is wrong (D41)", () =>
    Effect.gen(function* () {
      const { sql, url } = yield* TestService
      const id = createdId(yield* (yield* TestService.tenant).create(minimal))
      const unlock = yield* lockTable(sql, "api_keys")
      const token = formatApiKey(randomBytes(32), true)
      const spoilt = token.slice(0, -1) + (token.endsWith("0") ? "1" : "0")
      assertRefused(yield* get(url, spoilt, id), "InvalidKey")
      yield* unlock
    })
  )
})
