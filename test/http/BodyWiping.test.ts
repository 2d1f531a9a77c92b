import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { vi } from "vitest"
import { minimal } from "../support/http/Bodies.ts"
import { create } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { layerLive } from "../support/process/layerLive.ts"

/** What was in every array that is filled with zeros while a program runs. */
const wipedBy = <A, E, R>(program: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const seen: Array<string> = []
    const fill = Reflect.get(Uint8Array.prototype, "fill")
    const spy = vi.spyOn(Uint8Array.prototype, "fill").mockImplementation(function (this: Uint8Array, value, from, to) {
      if (value === 0) seen.push(Buffer.from(this).toString())
      return fill.call(this, value, from, to)
    })
    yield* Effect.ensuring(
      program,
      Effect.sync(() => spy.mockRestore())
    )
    return seen
  })

layerLive(TestService.layer)("the buffer of a body is overwritten after use", (it) => {
  it.effect.each([
    [201, JSON.stringify(minimal)],
    [400, JSON.stringify({ ...minimal, name: 1 })],
    [400, `${JSON.stringify(minimal)}}`]
  ] as const)("%i: %s", ([status, body]) =>
    Effect.gen(function* () {
      const { tenant, url } = yield* TestService
      const { management_key } = yield* tenant
      let answered = 0
      const wiped = yield* wipedBy(
        Effect.map(create(url, management_key, body), (answer) => {
          answered = answer.status
        })
      )
      assert.strictEqual(answered, status)
      assert.include(wiped, body)
    })
  )
})
