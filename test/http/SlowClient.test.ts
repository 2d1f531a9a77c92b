import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Schedule } from "effect"
import { created, minimal } from "../support/Bodies.ts"
import { bearer, create, get, type Header, json, render, send } from "../support/HttpProbe.ts"
import { open, type RawConnection } from "../support/RawConnection.ts"
import { assertRefused } from "../support/Refusal.ts"
import * as TestServiceLive from "../support/TestService.ts"
import { TestService } from "../support/TestService.ts"

/** Goes on sending one byte a second. */
const trickle = (connections: ReadonlyArray<RawConnection>, byte: string) =>
  Effect.forEach(connections, ({ write }) => write(byte)).pipe(
    Effect.repeat(Schedule.spaced("1 second")),
    Effect.andThen(Effect.never)
  )

const post = (token: string, framing: Header) =>
  render({ method: "POST", path: "/api/v1/byok", headers: [bearer(token), json, framing] })

/** What comes slowly, after what came at once. */
const slow: ReadonlyArray<{
  readonly part: string
  readonly begin: (token: string) => string | Buffer
  readonly byte: string
}> = [
  { part: "the request line", begin: () => "GET /", byte: "a" },
  { part: "a header", begin: () => "GET /health/live HTTP/1.1\r\nHost: a\r\nX-Slow: ", byte: "a" },
  { part: "the body", begin: (token) => post(token, ["Content-Length", "200"]), byte: " " },
  { part: "the size of a chunk", begin: (token) => post(token, ["Transfer-Encoding", "chunked"]), byte: "0" },
  { part: "chunk after chunk", begin: (token) => post(token, ["Transfer-Encoding", "chunked"]), byte: "1\r\n \r\n" }
]

layer(TestServiceLive.layer, { excludeTestServices: true, concurrent: true })("slow clients", (it) => {
  it.effect("1 byte a second, in any part of a request: 408 within 10 seconds, and no row (security)", () =>
    Effect.gen(function* () {
      const { newTenant, sql, url } = yield* TestService
      const { account_id, management_key } = yield* newTenant
      yield* Effect.forEach(
        slow,
        Effect.fnUntraced(function* ({ begin, byte }) {
          const connection = yield* open(url)
          yield* connection.write(begin(management_key))
          const answer = yield* Effect.race(connection.answer, trickle([connection], byte)).pipe(
            Effect.timeout("10 seconds")
          )
          assertRefused(answer, "RequestTimeout")
          assert.strictEqual(answer.headers["connection"], "close")
          yield* Effect.timeout(connection.closed, "4 seconds")
        }),
        { concurrency: "unbounded" }
      )
      assert.lengthOf(yield* sql`SELECT id FROM credentials WHERE account_id = ${account_id}`, 0)
    })
  )

  it.effect("a connection on which nothing is ever sent is closed within 10 seconds (security)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const connection = yield* open(url)
      const received = yield* Effect.timeout(connection.closed, "10 seconds")
      assert.match(received, /^(HTTP\/1\.1 408 |$)/)
    })
  )

  it.effect(
    "a connection on which nothing follows an answer is closed within 10 seconds of the limit of 5, without a word (security)",
    () =>
      Effect.gen(function* () {
        const { url } = yield* TestService
        const connection = yield* open(url)
        yield* connection.write(render({ path: "/health/live" }))
        yield* connection.answer
        assert.strictEqual(yield* Effect.timeout(connection.closed, "15 seconds"), "")
      })
  )

  it.effect("800 slow connections are closed, and others are served meanwhile (security)", () =>
    Effect.gen(function* () {
      const { newTenant, url } = yield* TestService
      const { management_key } = yield* newTenant
      const connections = yield* Effect.forEach(Array.from({ length: 800 }), () => open(url), { concurrency: 100 })
      yield* Effect.forEach(connections, ({ write }) => write("POST /api/v1/byok HTTP/1.1\r\nHost: a\r\nX-Slow: "))
      const trickling = yield* Effect.forkChild(trickle(connections, "a"))
      const closing = yield* Effect.forkChild(
        Effect.forEach(connections, ({ closed }) => closed, { concurrency: "unbounded" }).pipe(
          Effect.timeout("15 seconds")
        )
      )
      const served = yield* Effect.gen(function* () {
        const { id } = created(yield* Effect.timeout(create(url, management_key, minimal), "4 seconds"))
        assert.strictEqual((yield* Effect.timeout(get(url, management_key, String(id)), "4 seconds")).status, 200)
        assert.strictEqual((yield* Effect.timeout(send(url, { path: "/health/ready" }), "4 seconds")).status, 200)
      }).pipe(Effect.repeat(Schedule.spaced("200 millis")), Effect.forkChild)
      const received = yield* Fiber.join(closing)
      yield* Fiber.interrupt(trickling)
      assert.isUndefined(served.pollUnsafe(), "the other client was not served")
      yield* Fiber.interrupt(served)
      assert.lengthOf(received, 800)
      for (const text of received) assert.match(text, /^HTTP\/1\.1 408 /)
    })
  )
})
