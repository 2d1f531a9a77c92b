import { connect } from "node:net"
import { Effect } from "effect"
import { makeNodeServer } from "../../src/http/makeNodeServer.ts"
import { connectionsOf, listening } from "../support/database/listen.ts"
import { assert, layerLive } from "../support/it.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { eventually } from "../support/process/eventually.ts"
import { creation, exchange, render, send } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { assertInvalid, assertRefused, type Issue, refusals } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { lockTable, untilWaiting } from "../support/database/transactions.ts"

const malformed: Issue = { path: [], message: "must be a well-formed HTTP request" }
const hosts: Issue = { path: [], message: "must have exactly one Host header" }

const unreadable: ReadonlyArray<readonly [name: string, bytes: string | Uint8Array]> = [
  ["garbage", "nonsense\r\n\r\n"],
  ["a TLS greeting", Buffer.from("16030100f8010000f40303", "hex")],
  ["the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
  ["an unknown method", "BREW /health/live HTTP/1.1\r\nHost: a\r\n\r\n"],
  ["bytes above 127 in the path", Buffer.from("GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n", "latin1")],
  ["a folded header", "GET /health/live HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"],
  ["U+0000 in a header", "GET /health/live HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n"],
  ["a negative Content-Length", "POST /api/v1/byok HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"],
  [
    "two Content-Length headers",
    "POST /api/v1/byok HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
  ],
  [
    "Content-Length together with Transfer-Encoding: chunked",
    "POST /api/v1/byok HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
  ],
  [
    "Transfer-Encoding: chunked, gzip",
    "POST /api/v1/byok HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"
  ]
]

const unacceptable: ReadonlyArray<readonly [string, number, string, keyof typeof refusals]> = [
  ["bytes that are not HTTP", 400, "nonsense\r\n\r\n", "InvalidParams"],
  ["CONNECT", 405, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "MethodNotAllowed"]
]

layerLive(TestService.layer)("malformed HTTP requests", (it) => {
  it.effect.each(unreadable)("answers 400 to %s, and closes the connection (D8)", function* ([, bytes]) {
    const { url } = yield* TestService
    const connection = yield* open(url)
    yield* connection.write(bytes)
    const answer = yield* Effect.timeout(connection.answer, "4 seconds")
    assertInvalid(answer, malformed)
    assert.strictEqual(answer.headers["connection"], "close")
    yield* Effect.timeout(connection.closed, "4 seconds")
  })

  it.effect.each<readonly [name: string, encoding: string, body: string]>([
    ["a chunk without a size", "chunked", "zz\r\n{}\r\n"],
    ["a chunk that is longer than its size", "chunked", "1\r\n{}\r\n0\r\n\r\n"],
    ["a transfer encoding other than chunked", "gzip", ""]
  ])("answers 400 to a create with %s, and stores no row (D8)", function* ([, encoding, body]) {
    const { create } = yield* TestService.tenant
    const asked = create(body, [["Transfer-Encoding", encoding]])
    assertInvalid(yield* TestService.storing(0, asked), malformed)
  })

  it.effect.each<readonly [string, ReadonlyArray<string>]>([
    ["none", []],
    ["two", ["a", "b"]],
    ["two equal ones", ["a", "a"]],
    ["an empty one and another", ["", "a"]]
  ])("answers 400 to a create without exactly one Host header: %s (RFC 9112, section 3.2)", function* ([, names]) {
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const body = JSON.stringify(minimal)
    const head = [
      "POST /api/v1/byok HTTP/1.1",
      `Authorization: Bearer ${management_key}`,
      "Content-Type: application/json"
    ]
    const lines = [...head, `Content-Length: ${body.length}`, ...names.map((name) => `Host: ${name}`), "", body]
    const absolute = lines.join("\r\n").replace("/api", "http://a/api")
    for (const text of [lines.join("\r\n"), absolute]) {
      const answer = yield* TestService.storing(0, exchange(url, text))
      assertInvalid(answer, hosts)
      assert.strictEqual(answer.headers["connection"], "close")
    }
  })

  it.effect("answers HTTP/1.0 requests without Host, and closes the connection (RFC 9112, section 3.2)", function* () {
    const { url } = yield* TestService
    const connection = yield* open(url)
    yield* connection.write("GET /health/live HTTP/1.0\r\n\r\n")
    const answer = yield* connection.answer
    assert.strictEqual(answer.body, '{"status":"live"}')
    assert.strictEqual(yield* Effect.timeout(connection.closed, "4 seconds"), "")
  })

  it.effect("does not parse the unread body of a refused request as another request", function* () {
    const { rowCount, url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const before = yield* rowCount
    const hidden = creation(management_key, minimal)
    const connection = yield* open(url)
    yield* connection.write(creation("unknown", undefined, [["Content-Length", String(hidden.length + 1)]]))
    assertRefused(yield* connection.answer, "InvalidKey")
    yield* connection.write(hidden)
    yield* connection.write("\n")
    yield* connection.write(render({ path: "/health/live" }))
    assert.strictEqual((yield* connection.answer).body, '{"status":"live"}')
    assert.strictEqual(yield* rowCount, before)
  })

  it.effect.each(unacceptable)(
    "answers a pending create first, then %s with %i under another request id (D1, D12)",
    function* ([, , bytes, refusal]) {
      const { sql, url } = yield* TestService
      const { management_key } = yield* TestService.tenant
      const unlock = yield* lockTable(sql, "credentials")
      const connection = yield* open(url)
      yield* connection.write(creation(management_key, minimal, [["X-Request-Id", "of-the-create"]]))
      yield* untilWaiting(sql, 1)
      yield* connection.write(bytes)
      yield* connection.write(bytes)
      // Anything refused at once is refused before this answer comes.
      yield* send(url, { path: "/health/live" })
      yield* unlock
      created(yield* connection.answer)
      const answer = yield* connection.answer
      assert.strictEqual(answer.status, refusals[refusal][0])
      assert.notStrictEqual(answer.headers["x-request-id"], "of-the-create")
      assert.strictEqual(yield* Effect.timeout(connection.closed, "4 seconds"), "")
    }
  )

  it.effect.each(unacceptable)(
    "answers %s with an error, and closes the connection even if the client keeps its side open (T9)",
    function* ([, , bytes]) {
      const { server } = makeNodeServer(serverSettings)
      const port = yield* listening(server)
      const refused = yield* Effect.callback<string>((resume) => {
        const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true })
        socket.once("data", (answer: Buffer) => resume(Effect.succeed(answer.toString())))
        socket.write(bytes)
      })
      assert.match(refused, /^HTTP\/1\.1 40[05] /)
      yield* eventually("the service lets go", connectionsOf(server), (count) => count === 0)
    }
  )

  it.effect.each([
    { what: "one long header", headers: [["X-Long", "a".repeat(17_000)]] },
    { what: "a long token", headers: [["Authorization", `Bearer ${"a".repeat(17_000)}`]] },
    { what: "a long path", path: `/${"a".repeat(17_000)}`, headers: [] },
    { what: "many headers", headers: Array.from({ length: 1000 }, (_, n) => [`X-${n}`, "aaaaaaaaaaaaaaaaaa"]) }
  ] satisfies ReadonlyArray<{ what: string; path?: string; headers: Array<[string, string]> }>)(
    "answers 431 to $what, and closes the connection (T9)",
    function* ({ headers, path = "/health/live" }) {
      const { url } = yield* TestService
      const connection = yield* open(url)
      yield* connection.write(render({ path, headers }))
      const answer = yield* connection.answer
      assertRefused(answer, "HeadersTooLarge")
      assert.strictEqual(answer.headers["connection"], "close")
      yield* Effect.timeout(connection.closed, "4 seconds")
    }
  )

  it.effect("accepts a request whose headers have 15,000 bytes", function* () {
    const answer = yield* TestService.send({ path: "/health/live", headers: [["X-Long", "a".repeat(15_000)]] })
    assert.strictEqual(answer.status, 200)
  })
})
