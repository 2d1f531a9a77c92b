import { Effect } from "effect"
import { minimal } from "../support/http/Bodies.ts"
import { create } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { wipedBy } from "../support/http/wipedBy.ts"
import { assert, layerLive } from "../support/it.ts"

layerLive(TestService.layer)("request bodies", (it) => {
  it.effect.each([
    [201, JSON.stringify(minimal)],
    [400, JSON.stringify({ ...minimal, name: 1 })],
    [400, `${JSON.stringify(minimal)}}`]
  ] as const)("the buffer of a body is overwritten after the answer %i to %s", function* ([status, body]) {
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
})
