import { Context, Effect, Fiber, Layer } from "effect"
import { Readiness } from "../../src/port/Readiness.ts"
import { holdOpen, refuseInserts, untilWaiting } from "../support/database/transactions.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { create, send } from "../support/http/HttpProbe.ts"
import { assertDeclared } from "../support/http/JsonSchema.ts"
import { assertHeaders, assertRefused } from "../support/http/Refusal.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, it, layerLive } from "../support/it.ts"
import { Recording } from "../support/process/Recording.ts"

const ready = { path: "/health/ready" }

layerLive(TestService.layer)("the health endpoints", (it) => {
  it.effect.each([
    { path: "/health/live", body: '{"status":"live"}' },
    { path: "/health/ready", body: '{"status":"ready"}' }
  ])("$path answers 200 without an API key and with an unknown one", function* ({ body, path }) {
    const { url } = yield* TestService
    for (const headers of [[], [["Authorization", "Bearer unknown"] as const]]) {
      const answer = yield* send(url, { path, headers })
      assert.strictEqual(answer.status, 200)
      assert.strictEqual(answer.body, body)
      assertHeaders(answer)
      assertDeclared(["get", path], answer)
    }
  })
})

/** How often readiness was evaluated, and what it finds. */
const watched = () => {
  const state = { evaluated: 0, problems: [] as ReadonlyArray<string>, warnings: [] as ReadonlyArray<string> }
  const readiness = Layer.succeed(Readiness, {
    problems: Effect.sync(() => {
      state.evaluated += 1
      return state.problems
    }).pipe(Effect.delay("50 millis")),
    warnings: Effect.sync(() => state.warnings)
  })
  return { state, readiness }
}

describe("GET /health/ready", () => {
  it.live("evaluates once a second at most, and logs each problem once, but shows none to clients (F13)", function* () {
    const { readiness, state } = watched()
    const service = TestService.recordedWith({
      parts: Effect.map(Effect.all([Effect.context<Parts>(), Layer.build(readiness)]), ([parts, other]) =>
        Context.merge(parts, other)
      ).pipe(Effect.scoped)
    })
    const context = yield* Layer.build(service)
    const { url } = Context.get(context, TestService)
    const { logs } = Context.get(context, Recording)
    const about = () => logs.flatMap(({ level, text }) => (text.includes("kek-canary") ? [`${level} ${text}`] : []))
    const askAll = Effect.forEach(Array.from({ length: 50 }), () => send(url, ready), { concurrency: "unbounded" })
    const turnsTo = (status: number) =>
      eventually(`the status is ${status}`, send(url, ready), (answer) => answer.status === status)

    yield* eventually("it is evaluated at the start (C3)", () => state.evaluated === 1)
    for (const { status } of yield* askAll) assert.strictEqual(status, 200)
    assert.isAtMost(state.evaluated, 2)
    state.problems = ["key kek-canary is missing"]
    yield* turnsTo(503)
    assert.isAtMost(state.evaluated, 4)
    for (const answer of yield* askAll) assertRefused(answer, "ServiceUnavailable")
    const before = state.evaluated
    yield* eventually("it was evaluated again", send(url, ready), () => state.evaluated > before)
    assert.lengthOf(about(), 1)
    assert.match(about()[0] ?? "", /^Warn .*Not ready: key kek-canary is missing/s)

    state.problems = []
    state.warnings = ["key kek-canary is missing from the keyring"]
    yield* turnsTo(200)
    assert.lengthOf(about(), 2)
    assert.match(about()[1] ?? "", /^Warn .*Ready, but: key kek-canary is missing from the keyring/s)
  })

  it.live("answers 200 and logs a warning without a stack while the database's disk is full (C4)", function* () {
    const context = yield* Layer.build(TestService.recordedWith({}))
    const { sql, tenant, url } = Context.get(context, TestService)
    const { logs } = Context.get(context, Recording)
    const { management_key } = yield* tenant
    yield* refuseInserts(sql, "credentials", "53100")
    assertRefused(yield* create(url, management_key, minimal), "InternalError")
    const lines = () => logs.filter(({ text }) => text.includes("the disk of the database is full"))
    const isWarned = () => lines().some(({ text }) => text.includes("Ready, but: the disk of the database is full"))
    yield* eventually("it is warned of", send(url, ready), ({ status }) => status === 200 && isWarned())
    for (const { text } of lines()) assert.notMatch(text, /\n\s+at /)
  })

  it.live("answers 200 while the queue of tenants' requests is full (F13)", function* () {
    const service = TestService.withDatabase({ queue: 1 })
    const { sql, tenant, url } = Context.get(yield* Layer.build(service), TestService)
    const { management_key } = yield* tenant
    const unlock = yield* holdOpen(sql, "LOCK TABLE credentials IN SHARE ROW EXCLUSIVE MODE")
    const waiting = yield* Effect.forkChild(create(url, management_key, minimal))
    yield* untilWaiting(sql, 1)
    assertRefused(yield* create(url, management_key, minimal), "ServiceUnavailable")
    assert.strictEqual((yield* send(url, ready)).status, 200)
    yield* unlock
    created(yield* Fiber.join(waiting))
  })
})
