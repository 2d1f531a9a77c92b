import { Effect } from "effect"
import { MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { create, creation } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { wipedBy } from "../support/http/wipedBy.ts"
import { assert, layerLive } from "../support/it.ts"

layerLive(TestService.layer)("the buffer of a body is overwritten after use", (it) => {
  it.effect.each([
    [201, JSON.stringify(minimal)],
    [400, JSON.stringify({ ...minimal, name: 1 })],
    [400, `${JSON.stringify(minimal)}}`]
  ] as const)("%i: %s", function* ([status, body]) {
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

  it.effect("each chunk of a body that arrives in chunks", function* () {
    const { tenant, url } = yield* TestService
    const { held } = yield* MemoryBudget
    const body = JSON.stringify(minimal)
    const sent = creation((yield* tenant).management_key, body)
    const connection = yield* open(url)
    const wiped = yield* wipedBy(
      Effect.gen(function* () {
        yield* connection.write(sent.subarray(0, -20))
        yield* eventually("the first part is held", () => held.body > 0)
        yield* connection.write(sent.subarray(-20))
        created(yield* connection.answer)
      })
    )
    assert.includeMembers(wiped, [body.slice(0, -20), body.slice(-20), body])
  })
})
