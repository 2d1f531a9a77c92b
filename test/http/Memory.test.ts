import { Duration, Effect } from "effect"
import { MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, creation, render } from "../support/http/HttpProbe.ts"
import { deafClient, open } from "../support/http/RawConnection.ts"
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

  it.effect("reserves no memory for announced bodies that have not arrived (T4)", function* () {
    const { url } = yield* TestService
    const noisy = yield* Effect.forEach(Array.from({ length: 4 }), () => TestService.newTenant)
    for (const { management_key } of noisy) {
      const head = creation(management_key, undefined, [["Content-Length", String(bodyBytes)]])
      for (let n = 0; n < 64; n++) yield* (yield* open(url)).write(head)
    }
    for (const tenant of [...noisy, yield* TestService.newTenant]) created(yield* tenant.create(minimal))
    assert.strictEqual((yield* held).body, 0)
  })

  it.effect("limits the memory of one account's incomplete bodies, so that another account can create", function* () {
    const { url } = yield* TestService
    const noisy = yield* TestService.newTenant
    const head = creation(noisy.management_key, undefined, [["Content-Length", String(bodyBytes)]])
    const connections = yield* Effect.forEach(Array.from({ length: 70 }), () => open(url))
    for (const { write } of connections) {
      yield* write(head)
      yield* write("{".repeat(bodyBytes - 1))
    }
    yield* untilHeld("body", (bytes) => bytes > 118 * mebibyte)
    assert.isAtMost((yield* held).body, 120 * mebibyte)
    created(yield* (yield* TestService.newTenant).create(minimal))
    const answer = yield* Effect.timeout(connections[69]?.answer ?? Effect.die("none"), "15 seconds")
    assert.strictEqual(answer.status, 408, "nobody read it to the end")
    yield* untilHeld("body", (bytes) => bytes === 0)
  })

  it.effect(
    "answers each of 150 bodies that together exceed the memory with 400 or 503, without a deadlock",
    function* () {
      const { url } = yield* TestService
      const noisy = yield* TestService.newTenant
      const head = creation(noisy.management_key, undefined, [["Content-Length", String(bodyBytes)]])
      const half = "{".repeat(bodyBytes / 2)
      const connections = yield* Effect.forEach(Array.from({ length: 150 }), () => open(url))
      for (const { write } of connections) {
        yield* write(head)
        yield* write(half)
      }
      yield* untilHeld("body", (bytes) => bytes > 118 * mebibyte)
      for (const { write } of connections) yield* write(half)
      const answers = yield* Effect.timeout(
        Effect.forEach(connections, ({ answer }) => answer),
        "5 seconds"
      )
      const statuses = new Set(answers.map(({ status }) => status))
      assert.isTrue(statuses.has(400), "some are read")
      assert.isEmpty(Array.from(statuses).filter((status) => status !== 400 && status !== 503))
      yield* untilHeld("body", (bytes) => bytes === 0)
    }
  )

  it.effect(
    "reserves a page's memory until its client reads it or leaves, and handles its next request only then (T1)",
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

  it.effect("reserves memory for a large credential while a get's answer is unread", function* () {
    const { url } = yield* TestService
    const { id, management_key } = yield* withLargeList
    const clients = yield* Effect.forEach(Array.from({ length: 4 }), () => deafClient(url))
    for (const client of clients) {
      client.write(render({ path: `/api/v1/byok/${id}`, headers: [bearer(management_key)] }))
    }
    yield* untilHeld("page", (bytes) => bytes > 76 * mebibyte && bytes < 80 * mebibyte)
    for (const client of clients) client.destroy()
    yield* untilHeld("page", (bytes) => bytes === 0)
  })

  it.effect("cuts off clients that leave an account's pages unread when another account needs memory", function* () {
    const { url } = yield* TestService
    const noisy = yield* withLargeList
    const clients = yield* Effect.forEach(Array.from({ length: 8 }), () => deafClient(url))
    for (const client of clients) client.write(listOf(noisy))
    yield* untilHeld("page", (bytes) => bytes > 90 * mebibyte)
    const quiet = yield* withLargeList
    const { body, status } = yield* quiet.list()
    assert.strictEqual(status, 200)
    assert.isAbove(body.length, 10_000_000)
    for (const client of clients) client.destroy()
    yield* untilHeld("page", (bytes) => bytes === 0)
  })
})
