import { assert, layerLive } from "../support/it.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import type { Header } from "../support/http/HttpProbe.ts"
import { assertHeaders, assertInvalid, assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const under = (idempotency_key: string): Header => ["Idempotency-Key", idempotency_key]

/** test/domain/IdempotencyKey.test.ts has the forms of one header. */
const forms: ReadonlyArray<readonly [name: string, headers: ReadonlyArray<Header>]> = [
  ["an idempotency key with a blank in it", [under("a b")]],
  ["an idempotency key with a letter beyond ASCII", [under("ä")]],
  ["two different Idempotency-Key headers", [under("one"), under("other")]],
  ["two equal Idempotency-Key headers", [under("one"), under("one")]],
  ["two Idempotency-Key headers, one of them empty", [under("one"), under("")]]
]

layerLive(TestService.layer)("create with an idempotency key (SECURITY.md, Idempotency records)", (it) => {
  it.effect(
    "create with a used idempotency key stores nothing, and repeats the first answer, marked by a header",
    function* () {
      const { create, get } = yield* TestService.newTenant
      const first = yield* create(minimal, [under("a")])
      assert.isUndefined(first.headers["idempotent-replayed"])
      const rewritten = ` ${JSON.stringify({ ...minimal, name: null, more: 1 })}`
      const again = yield* TestService.storing(0, create(rewritten, [under("a")]))
      assert.strictEqual(again.status, 201)
      assert.strictEqual(again.headers["idempotent-replayed"], "true")
      assert.strictEqual(again.body, first.body)
      assertHeaders(again)
      const id = createdId(first)
      assert.strictEqual((yield* get(id)).body, first.body)
      assert.notStrictEqual(created(yield* create(minimal, [under("b")]))["id"], id)
    }
  )

  it.effect(
    "a repeated create whose credential was deleted answers 409, however its body is written (L11)",
    function* () {
      const { create, delete: remove, workspace_id } = yield* TestService.newTenant
      const ask = (body: object) => TestService.storing(0, create(body, [under("deleted")]))
      yield* remove(createdId(yield* create(minimal, [under("deleted")])))
      assertRefused(yield* ask(minimal), "CredentialDeleted")
      assertRefused(yield* ask({ ...minimal, workspace_id, disabled: false }), "CredentialDeleted")
      assertRefused(yield* ask({ ...minimal, disabled: true }), "Conflict")
    }
  )

  it.effect.each(forms)("create answers 400 to %s (D7)", function* ([, headers]) {
    const { create } = yield* TestService.tenant
    assertInvalid(yield* TestService.storing(0, create(minimal, headers)), {
      path: ["idempotency-key"],
      message: "must be 1 to 255 visible ASCII characters, sent once"
    })
  })
})
