import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { created, minimal } from "../support/http/Bodies.ts"
import { create, get, send } from "../support/http/HttpProbe.ts"
import * as RecordingLive from "../support/process/Recording.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import * as TestServiceLive from "../support/http/TestService.ts"
import { TestService } from "../support/http/TestService.ts"
import { type FaultyKeyStore, partsWith } from "./FaultyKeyStore.ts"

const store: FaultyKeyStore = { state: "well" }

const service = Layer.provideMerge(TestServiceLive.layerWith({ parts: partsWith(store) }), RecordingLive.layer)

/** Two creates while the store fails: which of them, a get and a probe of liveness ended, in what order. */
const fails = Effect.fnUntraced(function* (state: FaultyKeyStore["state"], why: string) {
  const { rowCount, tenant, url } = yield* TestService
  const { management_key } = yield* tenant
  const first = yield* create(url, management_key, minimal)
  const before = yield* rowCount
  const ended: Array<string> = []
  const noted = <A, E, R>(name: string, request: Effect.Effect<A, E, R>) =>
    Effect.tap(request, () => Effect.sync(() => ended.push(name)))
  const creating = noted("create", create(url, management_key, minimal))
  const getting = noted("get", get(url, management_key, String(created(first)["id"])))
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
  created(yield* create(url, management_key, minimal))
  return ended
})

layer(service, { excludeTestServices: true })("a key store", (it) => {
  it.effect.each([["down", "it is down"] as const, ["wrong", "23514"] as const])(
    "that is %s: create is 500 and stores nothing, get answers, and all is well once it is well (R10)",
    ([state, why]) => fails(state, why)
  )

  it.effect("that does not answer: the same, and get does not wait for create (R10)", () =>
    Effect.gen(function* () {
      const ended = yield* fails("slow", "it does not answer")
      assert.sameMembers(ended.slice(0, 2), ["get", "live"])
    })
  )
})
