import { Context, Effect, Fiber, Layer } from "effect"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { databaseSettings } from "../support/database/freshDatabase.ts"
import { create, get, send } from "../support/http/HttpProbe.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { holdOpen, untilWaiting } from "../support/database/transactions.ts"
import { assert, describe, it } from "../support/it.ts"

const { poolSize } = databaseSettings

describe("while every connection for writes waits for a lock", () => {
  it.live("create fails with 500 at the deadline, while get and liveness succeed (R5, D11)", function* () {
    const { newTenant, sql, tenant, url } = Context.get(
      yield* Layer.build(Layer.provideMerge(TestService.layer, Recording.layer)),
      TestService
    )
    const { management_key } = yield* tenant
    const first = yield* create(url, management_key, minimal)
    // No account may have all connections.
    const others = yield* Effect.all(Array.from({ length: 3 * poolSize }, () => newTenant))
    const unlock = yield* holdOpen(sql, "LOCK TABLE credentials IN SHARE ROW EXCLUSIVE MODE")
    const one = yield* Effect.forkChild(create(url, management_key, minimal))
    yield* untilWaiting(sql, 1)
    const more = yield* Effect.forkChild(
      Effect.forEach(others, (other) => create(url, other.management_key, minimal), { concurrency: "unbounded" })
    )
    yield* untilWaiting(sql, poolSize)
    const read = get(url, management_key, createdId(first))
    const reads = yield* Effect.all([read, read, read, read, read, read], { concurrency: "unbounded" })
    for (const answer of reads) assert.deepStrictEqual([answer.status, answer.body], [200, first.body])
    assert.strictEqual((yield* send(url, { path: "/health/live" })).status, 200)

    const answers = [yield* Fiber.join(one), ...(yield* Fiber.join(more))]
    for (const answer of answers) assertRefused(answer, "InternalError")
    yield* unlock
    created(yield* create(url, management_key, minimal))
  })
})
