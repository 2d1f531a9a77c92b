import { Effect, Schedule } from "effect"
import { assert, layerLive } from "../support/it.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { creation, type Header } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const limit = 256 * 1024

/** A valid body of exactly this many bytes. */
const bodyOf = (bytes: number) => {
  const empty = JSON.stringify({ ...minimal, key: "" })
  return JSON.stringify({ ...minimal, key: "k".repeat(bytes - empty.length) })
}

/** A body in chunks of 64 KiB, without a declared length. */
const chunked = (body: string) => {
  const parts = body.match(/[^]{1,65536}/g) ?? []
  return `${parts.map((part) => `${part.length.toString(16)}\r\n${part}\r\n`).join("")}0\r\n\r\n`
}

const inChunks: Header = ["Transfer-Encoding", "chunked"]

layerLive(TestService.layer)("the limit of a request body (D9)", (it) => {
  it.effect("accepts a body of exactly 256 KiB, with Content-Length or in chunks (D9, D26)", function* () {
    const { create, get } = yield* TestService.tenant
    const body = bodyOf(limit)
    assert.strictEqual(Buffer.byteLength(body), limit)
    const made = yield* create(body)
    created(made)
    created(yield* create(chunked(body), [inChunks]))
    assert.strictEqual((yield* get(createdId(made))).body, made.body)
  })

  it.effect.each([
    { size: "256 KiB and one byte", body: bodyOf(limit + 1) },
    { size: "3 MB", body: bodyOf(3_000_000) },
    { size: "blanks behind a valid object", body: bodyOf(1000) + " ".repeat(limit) },
    { size: "400,000 bytes that are no JSON", body: "x".repeat(400_000) }
  ])("answers 413 to a body of $size, with Content-Length or in chunks, and stores no row (D9)", function* ({ body }) {
    const { create } = yield* TestService.tenant
    const asked = Effect.all([create(body), create(chunked(body), [inChunks])])
    for (const answer of yield* TestService.storing(0, asked)) assertRefused(answer, "PayloadTooLarge")
  })

  it.effect("limits the body in bytes, not in characters (D9)", function* () {
    const { create } = yield* TestService.tenant
    assertRefused(yield* create({ ...minimal, key: "é".repeat(limit / 2) }), "PayloadTooLarge")
  })

  it.effect.each(["262145", "10737418240"])(
    "answers 413 to %s declared bytes before the client sends any, and closes the connection (D9)",
    function* (length) {
      const { url } = yield* TestService
      const { management_key } = yield* TestService.tenant
      const connection = yield* open(url)
      yield* connection.write(creation(management_key, undefined, [["Content-Length", length]]))
      const answer = yield* Effect.timeout(connection.answer, "4 seconds")
      assertRefused(answer, "PayloadTooLarge")
      assert.strictEqual(answer.headers["connection"], "close")
      assert.strictEqual(yield* Effect.timeout(connection.closed, "4 seconds"), "")
    }
  )

  it.effect("answers 413 to endless chunks at the limit, and then closes the connection (D9, T9)", function* () {
    const { rowCount, tenant, url } = yield* TestService
    const before = yield* rowCount
    const connection = yield* open(url)
    yield* connection.write(creation((yield* tenant).management_key, undefined, [inChunks]))
    const chunk = `10000\r\n${" ".repeat(0x10000)}\r\n`
    const stream = connection
      .write(chunk)
      .pipe(Effect.repeat(Schedule.spaced("20 millis")), Effect.andThen(Effect.never))
    const answer = yield* Effect.race(connection.answer, stream).pipe(Effect.timeout("10 seconds"))
    assertRefused(answer, "PayloadTooLarge")
    yield* Effect.race(connection.closed, stream).pipe(Effect.timeout("15 seconds"))
    assert.strictEqual(yield* rowCount, before)
  })

  it.effect("does not read the body on a route that takes none, whatever its size (D9)", function* () {
    const { send } = yield* TestService.tenant
    const headers = [["Content-Length", "10737418240"]] as const
    const answer = yield* Effect.timeout(send({ path: "/api/v1/byok/nonsense", headers }), "4 seconds")
    assertRefused(answer, "NotFound")
    assert.strictEqual(answer.headers["connection"], "close")
  })
})
