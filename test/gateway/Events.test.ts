import { Context, Duration, Effect, Fiber } from "effect"
import { Events } from "../../src/port/Events.ts"
import { Draining } from "../../src/port/Readiness.ts"
import { createdId } from "../support/http/Bodies.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { ask, listening, openSocket, socketPath } from "./socket.ts"

interface Page {
  readonly data: ReadonlyArray<{ readonly id: string; readonly action: string; readonly account_id?: string }>
  readonly last_seq: number
}

const next = (path: string, query: string) =>
  Effect.map(ask(path, "GET", `/v1/events?${query}`), ({ status, text }) => {
    assert.strictEqual(status, 200, text)
    return JSON.parse(text) as Page
  })

const sealed = Effect.flatMap(TestService, ({ sql }) =>
  eventually(
    "every entry is sealed",
    Effect.orDie(
      sql<{ n: number }>`SELECT count(*)::int AS n FROM audit_entries
        WHERE seq > (SELECT coalesce(max(last_seq), 0) FROM audit_checkpoints)`
    ),
    ([row]) => row?.n === 0
  )
)

let begun = 0

/** Counts the waits for events that begin. */
const counting = Effect.map(Effect.context<Parts>(), (parts) => {
  const { list, next } = Context.get(parts, Events)
  const counted: typeof next = (...given) => {
    begun += 1
    return next(...given)
  }
  return Context.add(parts, Events, { list, next: counted })
})

/** One connection for reads and a deadline of a second: a wait that occupied the connection would be noticed. */
const scarce = { poolSize: 1, deadline: Duration.seconds(1), statementTimeout: Duration.millis(800) }

layerLive(
  TestService.layerWith({
    parts: counting,
    settings: (settings) => ({ ...settings, database: { ...settings.database, ...scarce } })
  })
)("the events of all accounts over the socket for gateways", (it) => {
  it.effect("can be awaited longer than the request deadline, without occupying a database connection", function* () {
    const { newTenant } = yield* TestService
    const path = yield* openSocket
    const tenant = yield* newTenant
    yield* sealed
    const { last_seq } = yield* next(path, `after=${(yield* next(path, "limit=100")).last_seq}`)
    const began = performance.now()
    assert.deepStrictEqual(yield* next(path, `after=${last_seq}&wait=2`), { data: [], last_seq })
    assert.isAbove(performance.now() - began, 1900)
    const before = begun
    const waiting = yield* Effect.forkChild(
      Effect.all(
        Array.from({ length: 50 }, () => next(path, `after=${last_seq}&wait=20`)),
        { concurrency: 50 }
      )
    )
    yield* eventually("all wait", () => begun === before + 50)
    createdId(yield* tenant.create({ provider: "azure", key: "sk-0123456789-0123456789-AbCd" }))
    for (const { data } of yield* Fiber.join(waiting)) assert.strictEqual(data[0]?.action, "credential.create")
  })

  it.effect("end a wait at once, with an empty page, when the service stops", function* () {
    const path = yield* socketPath
    let isDraining = false
    const stopping = yield* Effect.scoped(
      Effect.gen(function* () {
        yield* Effect.provideService(listening(path), Draining, () => isDraining)
        const before = begun
        const stopping = yield* Effect.forkDetach(next(path, "after=1000000&wait=60"))
        yield* eventually("it waits", () => begun === before + 1)
        isDraining = true
        return stopping
      })
    ).pipe(Effect.timeout("3 seconds"))
    assert.deepStrictEqual(yield* Fiber.join(stopping), { data: [], last_seq: 1_000_000 })
  })

  it.effect("are refused with 400 if a parameter is unknown or out of range", function* () {
    const path = yield* openSocket
    for (const [query, message] of [
      ["wait=61", "must be an integer from 0 to 60, given once"],
      ["limit=0", "must be an integer from 1 to 100, given once"],
      ["before=1", "only after, limit and wait are parameters of events"]
    ] as const) {
      const { status, text } = yield* ask(path, "GET", `/v1/events?${query}`)
      assert.strictEqual(status, 400)
      assert.include(text, message)
    }
  })
})
