import { Duration, Effect } from "effect"
import { MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, creation, render } from "../support/http/HttpProbe.ts"
import { deafClient, open } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Tenant, TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"

const mebibyte = 1024 * 1024
const bodyBytes = 256 * 1024

/** Reading 10 MB may take longer on a busy machine than a request usually may. */
const patient = { statementTimeout: Duration.seconds(25), deadline: Duration.seconds(30) }

const small = TestService.layerWith({
  settings: (settings) => ({
    ...settings,
    memoryBudget: 160 * mebibyte,
    sendTimeout: Duration.minutes(1),
    database: { ...settings.database, ...patient }
  })
})

/** A tenant whose list is 10 MB of text, which is more than the kernel takes for a client that does not read. */
const withLargeList = Effect.gen(function* () {
  const { sql } = yield* TestService
  const tenant = yield* TestService.newTenant
  const id = createdId(yield* tenant.create(minimal))
  yield* sql`UPDATE credentials SET allowed_models = (SELECT array_agg(repeat('x', 100000)) FROM generate_series(1, 100))
    WHERE account_id = ${tenant.account_id}`
  return { ...tenant, id }
})

const listOf = ({ management_key }: Tenant) => render({ path: "/api/v1/byok", headers: [bearer(management_key)] })

layerLive(small)("a memory budget of 160 MiB", (it) => {
  const held = Effect.map(MemoryBudget, ({ held }) => held)
  const untilHeld = (use: "page" | "body", isReached: (bytes: number) => boolean) =>
    eventually(
      `the ${use}s held are as expected`,
      Effect.map(held, (held) => isReached(held[use]))
    )

  it.effect("holds no memory for announced bodies that have not arrived (T4)", function* () {
    const { url } = yield* TestService
    const noisy = yield* Effect.forEach(Array.from({ length: 4 }), () => TestService.newTenant)
    for (const { management_key } of noisy) {
      const head = creation(management_key, undefined, [["Content-Length", String(bodyBytes)]])
      for (let n = 0; n < 64; n++) yield* (yield* open(url)).write(head)
    }
    for (const tenant of [...noisy, yield* TestService.newTenant]) created(yield* tenant.create(minimal))
    assert.strictEqual((yield* held).body, 0)
  })

  it.effect("refuses bodies of an account beyond its share at once, so that another account can create", function* () {
    const { url } = yield* TestService
    const noisy = yield* TestService.newTenant
    const head = creation(noisy.management_key, undefined, [["Content-Length", String(bodyBytes)]])
    const clients = yield* Effect.forEach(Array.from({ length: 70 }), () => deafClient(url))
    for (const client of clients) client.write(Buffer.concat([Buffer.from(head), Buffer.alloc(bodyBytes - 1, "{")]))
    yield* untilHeld("body", (bytes) => bytes > 50 * mebibyte)
    created(yield* (yield* TestService.newTenant).create(minimal))
    const refused = yield* open(url)
    yield* refused.write(head)
    yield* refused.write("{".repeat(bodyBytes))
    const answer = yield* Effect.timeout(refused.answer, "4 seconds")
    assertRefused(answer, "ServiceUnavailable")
    assert.strictEqual(answer.headers["retry-after"], "1")
    assert.isAtMost((yield* held).body, 54 * mebibyte)
    for (const client of clients) client.destroy()
    yield* untilHeld("body", (bytes) => bytes === 0)
    created(yield* noisy.create(minimal))
  })

  it.effect(
    "holds a page's memory until its client reads it or leaves, and handles its next request only then (T1)",
    function* () {
      const { url } = yield* TestService
      const noisy = yield* withLargeList
      const client = yield* deafClient(url)
      for (let n = 0; n < 60; n++) client.write(listOf(noisy))
      yield* untilHeld("page", (bytes) => bytes > 18 * mebibyte && bytes < 24 * mebibyte)
      yield* Effect.sleep("300 millis")
      assert.isAtMost((yield* held).page, 24 * mebibyte, "one page")
      const calm = yield* TestService.newTenant
      assert.strictEqual((yield* calm.list()).status, 200)
      client.destroy()
      yield* untilHeld("page", (bytes) => bytes === 0)
    }
  )

  it.effect("holds memory for a large credential while a get's answer is unread", function* () {
    const { url } = yield* TestService
    const { id, management_key } = yield* withLargeList
    const client = yield* deafClient(url)
    client.write(render({ path: `/api/v1/byok/${id}`, headers: [bearer(management_key)] }))
    yield* untilHeld("page", (bytes) => bytes > 19 * mebibyte && bytes < 23 * mebibyte)
    client.destroy()
    yield* untilHeld("page", (bytes) => bytes === 0)
  })

  it.effect("refuses an account that leaves its pages unread, but not another account", function* () {
    const { url } = yield* TestService
    const noisy = yield* withLargeList
    const clients = yield* Effect.forEach([1, 2], (pages) =>
      Effect.gen(function* () {
        const client = yield* deafClient(url)
        client.write(listOf(noisy))
        yield* untilHeld("page", (bytes) => bytes > 18 * pages * mebibyte && bytes < 22 * pages * mebibyte)
        return client
      })
    )
    assertRefused(yield* noisy.list(), "ServiceUnavailable")
    const { body, status } = yield* (yield* withLargeList).list()
    assert.strictEqual(status, 200)
    assert.isAbove(body.length, 10_000_000)
    for (const client of clients) client.destroy()
    yield* untilHeld("page", (bytes) => bytes === 0)
  })
})
