import { Effect, Fiber, Schedule } from "effect"
import { makeNodeServer } from "../../src/http/makeNodeServer.ts"
import { assert, it, layerLive } from "../support/it.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { create, creation, get, type Header, send } from "../support/http/HttpProbe.ts"
import { open, type RawConnection } from "../support/http/RawConnection.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { assertRefused, envelope } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

/** Keeps sending one byte a second. */
const trickle = (connections: ReadonlyArray<RawConnection>, byte: string) =>
  Effect.forEach(connections, ({ write }) => write(byte)).pipe(
    Effect.repeat(Schedule.spaced("1 second")),
    Effect.andThen(Effect.never)
  )

const post = (token: string, framing: Header) => creation(token, undefined, [framing])

/** The limits are 5 seconds for a head and 8 for a request, checked every second; the rest is margin for a busy machine. */
const timeout = "18 seconds"

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

it("the server's timeouts for slow clients are below 9 seconds (T9)", () => {
  const { headersTimeout, keepAliveTimeout, requestTimeout } = makeNodeServer(serverSettings).server
  for (const limit of [headersTimeout, keepAliveTimeout, requestTimeout]) {
    assert.isAbove(limit, 0)
    assert.isBelow(limit, 9_000)
  }
})

layerLive(TestService.layer, { concurrent: true })("slow clients (T9)", (it) => {
  it.effect("answers 408 to a client that sends 1 byte a second, in any part of a request (T9)", function* () {
    const { sql, url } = yield* TestService
    const { account_id, management_key } = yield* TestService.newTenant
    yield* Effect.forEach(
      slow,
      Effect.fnUntraced(function* ({ begin, byte }) {
        const connection = yield* open(url)
        yield* connection.write(begin(management_key))
        const answer = yield* Effect.race(connection.answer, trickle([connection], byte)).pipe(Effect.timeout(timeout))
        assertRefused(answer, "RequestTimeout")
        assert.strictEqual(answer.headers["connection"], "close")
        yield* Effect.timeout(connection.closed, "4 seconds")
      }),
      { concurrency: "unbounded" }
    )
    assert.lengthOf(yield* sql`SELECT id FROM credentials WHERE account_id = ${account_id}`, 0)
  })

  it.effect("closes a connection that sends nothing within the time limit (T9)", function* () {
    const { url } = yield* TestService
    const connection = yield* open(url)
    const received = yield* Effect.timeout(connection.closed, timeout)
    assert.match(received, /^(HTTP\/1\.1 408 |$)/)
  })

  it.effect("closes 800 connections with a slow head or body, and serves other clients meanwhile (T9)", function* () {
    const { newTenant, sql, url } = yield* TestService
    const [attacker, other] = [yield* newTenant, yield* newTenant]
    const begun = [
      "POST /api/v1/byok HTTP/1.1\r\nHost: a\r\nX-Slow: ",
      post(attacker.management_key, ["Content-Length", "200"])
    ]
    const connections = yield* Effect.forEach(
      Array.from({ length: 800 }, (_, index) => begun[index % 2] ?? ""),
      (head) => Effect.tap(open(url), ({ write }) => write(head)),
      { concurrency: 100 }
    )
    const trickling = yield* Effect.forkChild(trickle(connections, " "))
    const closing = yield* Effect.forkChild(
      Effect.forEach(connections, ({ closed }) => closed, { concurrency: "unbounded" }).pipe(Effect.timeout(timeout))
    )
    let served = 0
    const serving = yield* Effect.gen(function* () {
      const { id } = created(yield* create(url, other.management_key, minimal))
      assert.strictEqual((yield* get(url, other.management_key, String(id))).status, 200)
      assert.strictEqual((yield* send(url, { path: "/health/ready" })).status, 200)
      served += 1
    }).pipe(Effect.timeout("5 seconds"), Effect.repeat(Schedule.spaced("200 millis")), Effect.forkChild)
    const received = yield* Fiber.join(closing)
    yield* Fiber.interrupt(trickling)
    assert.isUndefined(serving.pollUnsafe(), "the other client was not served")
    yield* Fiber.interrupt(serving)
    assert.isAbove(served, 1)
    assert.lengthOf(received, 800)
    for (const text of received) {
      assert.match(text, /^HTTP\/1\.1 408 /)
      assert.isTrue(text.endsWith(envelope("RequestTimeout")), text)
    }
    assert.lengthOf(yield* sql`SELECT id FROM credentials WHERE account_id = ${attacker.account_id}`, 0)
  })
})
