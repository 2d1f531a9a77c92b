import { assert } from "@effect/vitest"
import { Context, Effect, Option } from "effect"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, minimal, unknownId } from "../support/http/Bodies.ts"
import { bearer, create, json, operationsOf, send } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"

const ordinaryKey = Effect.flatMap(TestService.tenant, ({ ordinaryKey }) => ordinaryKey)

/** Sends only the head of a create: an answer then comes without reading the body. */
const createWithoutBody = Effect.fnUntraced(function* (token: string, length: string) {
  const { url } = yield* TestService
  return yield* send(url, {
    method: "POST",
    path: "/api/v1/byok",
    headers: [bearer(token), json, ["Content-Length", length]]
  })
})

const assertForbidden = (answer: Answer) => {
  assertRefused(answer, "Forbidden")
  assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="insufficient_scope"')
}

layerLive(TestService.layer)("403 for an ordinary key", (it) => {
  it.effect.each([
    ["a valid body", minimal],
    ["an invalid body", { key: "" }],
    ["no JSON", "{"],
    ["a body over the limit", "x".repeat(300_000)]
  ])("on create with %s, without a row (sections 5 and 7, T7)", ([, body]) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      assertForbidden(yield* TestService.storing(0, create(url, yield* ordinaryKey, body)))
    })
  )

  it.effect(
    "on get, update and delete of its own account's id, an unknown and an impossible one, and on list (D4)",
    () =>
      Effect.gen(function* () {
        const { url } = yield* TestService
        const tenant = yield* TestService.tenant
        const own = createdId(yield* tenant.create(minimal))
        const ordinary = operationsOf(url, yield* ordinaryKey)
        for (const id of [own, unknownId, "nonsense"]) {
          const requests = [ordinary.get(id), ordinary.update(id, { name: "x" }), ordinary.delete(id)]
          for (const answer of yield* Effect.all(requests)) assertForbidden(answer)
        }
        assertForbidden(yield* ordinary.list())
        assert.strictEqual((yield* tenant.get(own)).status, 200)
      })
  )

  it.effect.each(["1000", "10737418240"])("before the body is read: %s bytes declared, none sent (D4, T7)", (length) =>
    Effect.gen(function* () {
      assertForbidden(yield* Effect.timeout(createWithoutBody(yield* ordinaryKey, length), "4 seconds"))
    })
  )

  it.effect("for a key that is no longer a management key, from the next request on (D42)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const { account_id, create } = yield* TestService.newTenant
      created(yield* create(minimal))
      yield* sql`UPDATE api_keys SET management = false WHERE account_id = ${account_id}`
      assertForbidden(yield* create(minimal))
    })
  )
})

/** A build that takes every live key for a management key. */
const everyKeyManages = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const { find, ownedBy } = Context.get(parts, ApiKeys)
  const managing: typeof find = (hash) =>
    Effect.map(
      find(hash),
      Option.map((key) => ({ ...key, management: true }))
    )
  return Context.add(parts, ApiKeys, { find: managing, ownedBy })
})

layerLive(TestService.layerWith({ parts: everyKeyManages }))(
  "positive control: a build without the check (T7)",
  (it) => {
    it.effect("stores a row, and waits for the body", () =>
      Effect.gen(function* () {
        const { url } = yield* TestService
        created(yield* TestService.storing(1, create(url, yield* ordinaryKey, minimal)))
        const answer = yield* Effect.timeoutOption(createWithoutBody(yield* ordinaryKey, "1000"), "300 millis")
        assert.isTrue(Option.isNone(answer))
      })
    )
  }
)
