import { Context, Effect, Fiber, Layer, Option, Redacted } from "effect"
import { inject } from "vitest"
import { limitedRole } from "../support/database/limitedRole.ts"
import { assert, describe, it, layerLive } from "../support/it.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { create } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { lockTable, untilWaiting } from "../support/database/transactions.ts"

/** Sends one request that has to wait for a table, and others meanwhile. */
const whileOneWaits = Effect.fnUntraced(function* <A>(
  table: string,
  first: Effect.Effect<Answer>,
  others: Effect.Effect<A>
) {
  const { sql } = yield* TestService
  const release = yield* lockTable(sql, table)
  const waiting = yield* Effect.forkChild(first)
  yield* untilWaiting(sql, 1)
  const meanwhile = yield* others
  yield* release
  return { first: yield* Fiber.join(waiting), meanwhile }
})

const assertUnavailable = (answer: Answer) => {
  assertRefused(answer, "ServiceUnavailable")
  assert.match(answer.headers["retry-after"] ?? "", /^[1-9]\d*$/)
}

layerLive(TestService.withDatabase({ queue: 1 }))("a full queue (D14)", (it) => {
  it.effect("a create answers 503 before authentication while the queue is full (D14)", function* () {
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const { first, meanwhile } = yield* whileOneWaits(
      "api_keys",
      create(url, management_key, minimal),
      Effect.all([create(url, management_key, minimal), create(url, "unknown", minimal)])
    )
    meanwhile.forEach(assertUnavailable)
    created(first)
  })
})

layerLive(TestService.layer)("a database that does not answer in time (D14)", (it) => {
  it.effect("if the database is late, reads answer 503, and a write, which may be stored, 500 (D11)", function* () {
    const { sql } = yield* TestService
    const { create, get, list, plan, send } = yield* TestService.tenant
    const id = createdId(yield* create(minimal))
    const release = yield* lockTable(sql, "credentials")
    const asked = { model: "a/model", targets: [{ provider: minimal.provider }] }
    const status = send({ path: `/api/v1/byok/${id}/status` })
    const answers = yield* Effect.all([get(id), list(""), status, plan(asked), create(minimal)], {
      concurrency: "unbounded"
    })
    yield* release
    answers.slice(0, 4).forEach(assertUnavailable)
    for (const answer of answers.slice(4)) assertRefused(answer, "InternalError")
  })
})

describe("a database that takes no more connections (D14)", () => {
  it.live("answers 503 to reads, and to writes, which did not begin (D11)", function* () {
    const { allow, urlOf } = yield* limitedRole(inject("serverUrl"))
    const service = TestService.layerWith({
      settings: (settings) => ({
        ...settings,
        databaseUrl: Option.map(settings.databaseUrl, (url) => Redacted.make(urlOf(Redacted.value(url))))
      })
    })
    const { tenant } = Context.get(yield* Layer.build(service), TestService)
    const { create, get, list } = yield* tenant
    const id = createdId(yield* create(minimal))
    yield* allow(0)
    for (const answer of [yield* get(id), yield* list(""), yield* create(minimal)]) assertUnavailable(answer)
    yield* allow(-1)
    assert.strictEqual((yield* get(id)).status, 200)
    created(yield* create(minimal))
  })
})
