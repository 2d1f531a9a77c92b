import { randomBytes, randomUUID } from "node:crypto"
import { Duration, Effect, Fiber } from "effect"
import { AccountId, type ApiKeyHash } from "../../src/domain/Identifiers.ts"
import { makeKnownAccounts } from "../../src/http/AuthenticationLive.ts"
import { formatApiKey } from "../../src/runtime/ApiKey.ts"
import { lockTable, waitingForLock } from "../support/database/transactions.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { get, json } from "../support/http/HttpProbe.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, it, layerLive } from "../support/it.ts"

const small = TestService.withDatabase({
  poolSize: 12,
  queue: 50,
  statementTimeout: Duration.seconds(25),
  deadline: Duration.seconds(28)
})

layerLive(small)("a queue of 50 (F9)", (it) => {
  it.effect("serves a known account while 60 requests with unknown tokens overflow a queue of 50", function* () {
    const { sql, url } = yield* TestService
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    const unlock = yield* lockTable(sql, "api_keys")
    let refused = 0
    const junk = yield* Effect.forEach(Array.from({ length: 60 }), () => {
      const token = formatApiKey(randomBytes(32), "management")
      return Effect.forkChild(
        Effect.tap(get(url, token, id), ({ status }) => Effect.sync(() => (refused += status === 503 ? 1 : 0)))
      )
    })
    yield* eventually("the first look-ups wait for the lock", waitingForLock(sql), (n) => n > 0)
    yield* eventually("the flood has used up its own line", () => refused > 0)
    const known = yield* Effect.forkChild(tenant.get(id))
    yield* Effect.sleep("100 millis")
    yield* unlock
    assert.strictEqual((yield* Fiber.join(known)).status, 200)
    const answers = yield* Effect.forEach(junk, Fiber.join)
    assert.deepStrictEqual(new Set(answers.map(({ status }) => status)), new Set([401, 503]))
  })

  it.effect("refuses a token with a wrong checksum without waiting for the database (D41)", function* () {
    const { sql, url } = yield* TestService
    const id = createdId(yield* (yield* TestService.tenant).create(minimal))
    const unlock = yield* lockTable(sql, "api_keys")
    const token = formatApiKey(randomBytes(32), "management")
    const spoilt = token.slice(0, -1) + (token.endsWith("0") ? "1" : "0")
    assertRefused(yield* get(url, spoilt, id), "InvalidKey")
    yield* unlock
  })
})

/** Long, so that the lists wait for as long as the test needs. */
const patient = TestService.withDatabase({ statementTimeout: Duration.seconds(25), deadline: Duration.seconds(28) })

layerLive(patient)("the connections behind the queue (F9)", (it) => {
  it.effect("plan for an account while 40 slow filtered lists of another one wait", function* () {
    const { sql } = yield* TestService
    const [noisy, quiet] = [yield* TestService.newTenant, yield* TestService.newTenant]
    created(yield* quiet.create(minimal))
    const request = { model: "a/model", targets: [{ provider: minimal.provider }] }
    const plan = quiet.send({
      method: "POST",
      path: "/api/v1/byok/plan",
      headers: [json],
      body: JSON.stringify(request)
    })
    // Only lists by this state read the locked table.
    const unlock = yield* lockTable(sql, "credential_use")
    const lists = yield* Effect.forEach(Array.from({ length: 40 }), () =>
      Effect.forkChild(noisy.send({ path: "/api/v1/byok?state=failing" }))
    )
    yield* eventually("the lists wait for the lock", waitingForLock(sql), (n) => n > 0)
    assert.strictEqual((yield* plan).status, 200)
    yield* unlock
    yield* Fiber.interruptAll(lists)
  })
})

it("the cache of known accounts holds those of the last 100,000 keys, and of a key in constant use for longer", () => {
  const { remember, tenantOf } = makeKnownAccounts()
  const account = AccountId.make(randomUUID())
  // Its schema takes most of the time for so many.
  const hashOf = (n: number) => n.toString(16).padStart(64, "0") as ApiKeyHash
  const used = 350_000
  remember(hashOf(0), account)
  let forgotten = 0
  for (let n = 1; n <= used; n++) {
    remember(hashOf(n), account)
    if (tenantOf(hashOf(0)) !== account) forgotten += 1
    remember(hashOf(0), account)
  }
  assert.strictEqual(forgotten, 0)
  const unknown = Array.from({ length: 100_000 }, (_, n) => hashOf(used - n)).filter(
    (hash) => tenantOf(hash) !== account
  )
  assert.lengthOf(unknown, 0)
  assert.notStrictEqual(tenantOf(hashOf(1)), account, "what is remembered is bounded")
})
