import { Effect } from "effect"
import { createdId, minimal, unknownId } from "../support/http/Bodies.ts"
import { assertInvalid } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

layerLive(TestService.layer)("PUT /api/v1/byok/order", (it) => {
  it.effect("answers 400 to orders with missing, foreign or repeated ids, and stores nothing (L14, T6)", function* () {
    const [tenant, stranger] = [yield* TestService.newTenant, yield* TestService.newTenant]
    const [one = "", two = ""] = yield* Effect.forEach([1, 2], () => Effect.map(tenant.create(minimal), createdId))
    const other = createdId(yield* stranger.create(minimal))
    const order = (ids: ReadonlyArray<string>, more: object = {}) =>
      tenant.order({ provider: minimal.provider, ids, ...more })
    assertInvalid(yield* order([two]), { path: ["ids"], message: `must have ${one} as well` })
    for (const foreign of [other, unknownId]) {
      assertInvalid(yield* order([two, one, foreign]), {
        path: ["ids", 2],
        message: "is not one of these credentials"
      })
    }
    const strangers = Array.from({ length: 99 }, (_, n) => unknownId.slice(0, -2) + String(n).padStart(2, "0"))
    assertInvalid(
      yield* order(strangers),
      ...strangers.map((_, n) => ({ path: ["ids", n], message: "is not one of these credentials" })),
      { path: ["ids"], message: `must have ${one} as well` }
    )
    const tooMany = Array.from({ length: 1001 }, () => 0) as never
    assertInvalid(yield* order(tooMany), { path: ["ids"], message: "must have at most 1000 elements" })
    assertInvalid(yield* order([one, one]), { path: ["ids"], message: "must name each credential once" })
    assertInvalid(yield* order([two, one], { workspace_id: stranger.workspace_id }), {
      path: ["workspace_id"],
      message: "is not a workspace of this account"
    })
    const { body } = yield* tenant.list()
    assert.deepStrictEqual(
      (JSON.parse(body) as { readonly data: ReadonlyArray<{ readonly sort_order: number }> }).data.map(
        ({ sort_order }) => sort_order
      ),
      [0, 1]
    )
  })
})
