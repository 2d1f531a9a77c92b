import { Context, Duration, Effect, Fiber } from "effect"
import { Credentials } from "../../src/port/Credentials.ts"
import { Links } from "../../src/service/links/Links.ts"
import { holdOpen, untilWaiting } from "../support/database/transactions.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { json } from "../support/http/HttpProbe.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { eventually } from "../support/process/eventually.ts"
import { openLink } from "./browser.ts"

const inProgress = 10
const keys = 70
const orders = 20

/** Counts of keys and orders that entered and left the queue of writes, and of keys that left before the first order. */
const seen = { keys: 0, keysOver: 0, orders: 0, keysBefore: [] as Array<number> }

const counting = Effect.map(Effect.context<Parts>(), (parts) => {
  const [credentials, links] = [Context.get(parts, Credentials), Context.get(parts, Links)]
  return parts.pipe(
    Context.add(Links, {
      ...links,
      openKey: (...sent) => {
        seen.keys += 1
        return Effect.ensuring(
          links.openKey(...sent),
          Effect.sync(() => (seen.keysOver += 1))
        )
      }
    }),
    Context.add(Credentials, {
      ...credentials,
      order: (asked) => {
        seen.orders += 1
        return Effect.ensuring(
          credentials.order(asked),
          Effect.sync(() => seen.keysBefore.push(seen.keysOver))
        )
      }
    })
  )
})

const small = TestService.layerWith({
  settings: ({ database, ...settings }) => ({
    ...settings,
    database: {
      ...database,
      poolSize: 4,
      queue: 8 * inProgress,
      statementTimeout: Duration.seconds(25),
      deadline: Duration.seconds(28)
    }
  }),
  parts: counting
})

layerLive(small)("a queue of 80 writes (F9)", (it) => {
  it.effect("serves another account before most of 70 invalid keys that one link sent first", function* () {
    const { sql } = yield* TestService
    const [tenant, other] = [yield* TestService.newTenant, yield* TestService.newTenant]
    const ids = [createdId(yield* other.create(minimal)), createdId(yield* other.create(minimal))].reverse()
    const { ask } = yield* openLink(tenant, { purpose: "manage" })
    const release = yield* holdOpen(sql, "SELECT 1 FROM links FOR UPDATE")
    const sealed_key = { enc: "AAAA", ciphertext: "AAAA" }
    const key = ask("POST", "/byok", { provider: "openai", name: null, sealed_key })
    const flood = yield* Effect.forkChild(Effect.replicateEffect(key, keys, { concurrency: "unbounded" }))
    yield* eventually("all keys wait", () => seen.keys === keys)
    yield* untilWaiting(sql, 2)
    const body = JSON.stringify({ provider: minimal.provider, ids })
    const order = other.send({ method: "PUT", path: "/api/v1/byok/order", headers: [json], body })
    const ordering = yield* Effect.forkChild(Effect.replicateEffect(order, orders, { concurrency: "unbounded" }))
    yield* eventually("all orders wait", () => seen.orders === orders)
    yield* release
    assert.deepStrictEqual(new Set((yield* Fiber.join(ordering)).map(({ status }) => status)), new Set([200]))
    // The keys in progress, and one for each order until orders have all places.
    assert.isAtMost(seen.keysBefore[0] ?? keys, 2 * inProgress + 1)
    const statuses = (yield* Fiber.join(flood)).map(({ status }) => status)
    assert.deepStrictEqual(new Set(statuses), new Set([409]), "all of it was tried (control)")
  })
})
