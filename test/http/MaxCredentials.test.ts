import { Array as Arr, Effect } from "effect"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import type { Header } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertInvalid } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const limit = 40
const bytes = 4_194_304

const under = (idempotency_key: string): ReadonlyArray<Header> => [["Idempotency-Key", idempotency_key]]

const assertFull = (answer: Answer) =>
  assertInvalid(answer, { path: ["provider"], message: `must have at most ${limit} credentials in a workspace` })

const limited = TestService.layerWith({
  settings: (settings) => ({ ...settings, poolLimits: { credentials: limit, bytes } })
})

layerLive(limited)("the limits of a pool", (it) => {
  it.effect("a create beyond MAX_CREDENTIALS of a workspace and provider is 400 and stores nothing", function* () {
    const { account_id, create, delete: remove, list } = yield* TestService.newTenant
    const [first] = yield* Effect.forEach(Arr.range(1, limit), (n) =>
      Effect.map(create(minimal, n === 2 ? under("second") : []), createdId)
    )
    assertFull(yield* create(minimal))
    assertFull(yield* create(minimal, under("new")))
    const together = Arr.range(1, 6).flatMap((n) => [create(minimal), create(minimal, under(`new-${n}`))])
    ;(yield* Effect.all(together, { concurrency: "unbounded" })).forEach(assertFull)
    assert.include((yield* list()).body, `"total_count":${limit}`)

    const { workspace_id } = yield* (yield* Accounts).createWorkspace(account_id, "another")
    created(yield* create({ ...minimal, workspace_id }))
    created(yield* create({ ...minimal, provider: "xai" }))
    const [, other] = yield* Effect.all([create(minimal), create({ ...minimal, provider: "cohere" })], {
      concurrency: "unbounded"
    })
    created(other)
    assert.strictEqual((yield* create(minimal, under("second"))).headers["idempotent-replayed"], "true")

    assert.strictEqual((yield* remove(first)).status, 200)
    created(yield* create(minimal, under("new")))
    assertFull(yield* create(minimal))
  })

  it.effect("a create or update that takes a pool beyond MAX_POOL_BYTES is 400", function* () {
    const { create, delete: remove, update } = yield* TestService.newTenant
    const { sql } = yield* TestService
    const large = { allowed_models: Arr.range(1, 99).map((n) => `${n}`.padEnd(255, "m")) }
    const id = createdId(yield* create(minimal))
    const [other, last] = [createdId(yield* create(minimal)), createdId(yield* create(minimal))]
    yield* sql`UPDATE pools SET bytes = ${bytes} - 24_000 WHERE provider = ${minimal.provider}`
    const full = {
      path: ["provider"],
      message: `must have at most ${bytes} bytes of lists and keys in a workspace`
    }
    assertInvalid(yield* create({ ...minimal, ...large }), full)
    assertInvalid(yield* update(id, large), full)
    const half = { allowed_models: large.allowed_models.slice(0, 60) }
    assert.deepStrictEqual(
      (yield* Effect.all([update(id, half), update(other, half)], { concurrency: "unbounded" }))
        .map(({ status }) => status)
        .toSorted(),
      [200, 400]
    )
    assert.strictEqual((yield* remove(last)).status, 200)
    created(yield* create(minimal))
  })
})
