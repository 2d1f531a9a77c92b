import { assert } from "@effect/vitest"
import { Context, Effect, Option, Redacted } from "effect"
import { Accounts } from "../../src/service/Accounts.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { bearer, create, get, type Header, json, send } from "../support/http/HttpProbe.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"

const ordinaryKey = Effect.gen(function* () {
  const { account_id } = yield* TestService.tenant
  const issued = yield* (yield* Accounts).issueApiKey(account_id, { name: "ordinary", management: false })
  return Redacted.value(issued.key)
})

/** Sends only the head of a create: an answer then comes without reading the body. */
const createWithoutBody = Effect.fnUntraced(function* (token: string, length: string) {
  const { url } = yield* TestService
  const headers: ReadonlyArray<Header> = [bearer(token), json, ["Content-Length", length]]
  return yield* send(url, { method: "POST", path: "/api/v1/byok", headers })
})

layerLive(TestService.layer)("403 for an ordinary key", (it) => {
  it.effect.each([
    ["a valid body", minimal],
    ["an invalid body", { key: "" }],
    ["no JSON", "{"],
    ["a body over the limit", "x".repeat(300_000)]
  ])("on create with %s, without a row (sections 5 and 7, T7)", ([, body]) =>
    Effect.gen(function* () {
      const { rowCount, url } = yield* TestService
      const before = yield* rowCount
      const answer = yield* create(url, yield* ordinaryKey, body)
      assertRefused(answer, "Forbidden")
      assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="insufficient_scope"')
      assert.strictEqual(yield* rowCount, before)
    })
  )

  it.effect("on get of its own account's id, an unknown one and an impossible one (D4)", () =>
    Effect.gen(function* () {
      const { tenant, url } = yield* TestService
      const own = created(yield* create(url, (yield* tenant).management_key, minimal))["id"]
      for (const id of [String(own), "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11", "nonsense"]) {
        const answer = yield* get(url, yield* ordinaryKey, id)
        assertRefused(answer, "Forbidden")
        assert.strictEqual(answer.headers["www-authenticate"], 'Bearer realm="byok", error="insufficient_scope"')
      }
    })
  )

  it.effect.each(["1000", "10737418240"])("before the body is read: %s bytes declared, none sent (D4, T7)", (length) =>
    Effect.gen(function* () {
      const answer = yield* Effect.timeout(createWithoutBody(yield* ordinaryKey, length), "4 seconds")
      assertRefused(answer, "Forbidden")
    })
  )

  it.effect("for a key that is no longer a management key, from the next request on (D42)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const { account_id, create } = yield* TestService.newTenant
      created(yield* create(minimal))
      yield* sql`UPDATE api_keys SET management = false WHERE account_id = ${account_id}`
      assertRefused(yield* create(minimal), "Forbidden")
    })
  )
})

/** A build that takes every live key for a management key. */
const everyKeyManages = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const { find, ownedBy } = Context.get(parts, ApiKeys)
  const broken: ApiKeys["Service"] = {
    find: (hash) =>
      Effect.map(
        find(hash),
        Option.map((key) => ({ ...key, management: true }))
      ),
    ownedBy
  }
  return Context.add(parts, ApiKeys, broken)
})

layerLive(TestService.layerWith({ parts: everyKeyManages }))(
  "positive control: a build without the check (T7)",
  (it) => {
    it.effect("stores a row, and waits for the body", () =>
      Effect.gen(function* () {
        const { rowCount, url } = yield* TestService
        const before = yield* rowCount
        created(yield* create(url, yield* ordinaryKey, minimal))
        assert.strictEqual(yield* rowCount, before + 1)
        const answer = yield* Effect.timeoutOption(createWithoutBody(yield* ordinaryKey, "1000"), "300 millis")
        assert.isTrue(Option.isNone(answer))
      })
    )
  }
)
