import { Effect } from "effect"
import { assert, layerLive } from "../support/it.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { send } from "../support/http/HttpProbe.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { type FaultyKeyStore, partsWith } from "./FaultyKeyStore.ts"

const store: FaultyKeyStore = { state: "well" }

const service = TestService.recordedWith({ parts: partsWith(store) })

/** Runs two creates, a get and a liveness probe while the store fails. Returns those that ended, in order. */
const fails = Effect.fnUntraced(function* (state: FaultyKeyStore["state"], why: string) {
  const { rowCount, url } = yield* TestService
  const { create, get } = yield* TestService.tenant
  const first = yield* create(minimal)
  const before = yield* rowCount
  const ended: Array<string> = []
  const noted = <A, E, R>(name: string, request: Effect.Effect<A, E, R>) =>
    Effect.tap(request, () => Effect.sync(() => ended.push(name)))
  const creating = noted("create", create(minimal))
  const getting = noted("get", get(createdId(first)))
  const probing = noted("live", send(url, { path: "/health/live" }))

  store.state = state
  const together = [creating, creating, getting, probing] as const
  const [one, other, found, live] = yield* Effect.all(together, { concurrency: "unbounded" })
  store.state = "well"

  for (const answer of [one, other]) {
    assertRefused(answer, "InternalError")
    const { logs } = yield* Recording
    const entry = logs.find(({ request_id }) => request_id === answer.headers["x-request-id"])
    assert.include(entry?.text, why)
    assert.notInclude(entry?.text, minimal.key)
  }
  assert.deepStrictEqual([found.status, found.body], [200, first.body])
  assert.strictEqual(live.status, 200)
  assert.strictEqual(yield* rowCount, before)
  created(yield* create(minimal))
  return ended
})

layerLive(service)("a key store", (it) => {
  it.effect.each([["down", "it is down"] as const, ["wrong", "23514"] as const])(
    "that is %s makes create fail with 500 and store nothing until it recovers, while get works (R10, D11)",
    ([state, why]) => fails(state, why)
  )

  it.effect("that does not answer makes create fail with 500, but delays no other request (R10, D11)", function* () {
    const ended = yield* fails("slow", "it does not answer")
    assert.sameMembers(ended.slice(0, 2), ["get", "live"])
  })
})
