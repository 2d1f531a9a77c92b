import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { join } from "node:path"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect } from "effect"
import { HttpServer, HttpServerRequest, HttpServerResponse } from "effect/http"
import { makeNodeServer, type ServerLimits } from "../../src/http/makeNodeServer.ts"
import { withJsonBody } from "../../src/http/RequestDecodingLive.ts"
import { listen } from "../../src/http/Server.ts"
import { makeMemoryBudget, type MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { connectionsOf } from "../support/database/listen.ts"
import { type Header, json, render } from "../support/http/HttpProbe.ts"
import { deafClient, halfOpenClient, open } from "../support/http/RawConnection.ts"
import { assertInvalid, assertRefused } from "../support/http/Refusal.ts"
import { assert, describe, it } from "../support/it.ts"
import { selfSignedCertificate } from "../support/keys/selfSignedCertificate.ts"
import { eventually } from "../support/process/eventually.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

/** More than the kernel takes for a client that does not read. */
const large = "x".repeat(16 * 1024 * 1024)

/** The events that the server of a test has recorded. */
interface Seen {
  readonly begun: Array<string>
  left: number
  isHeld: boolean
}

/** Answers in the way that the path names. */
const answering = (seen: Seen, budget: typeof MemoryBudget.Service) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
    seen.begun.push(request.url)
    const text = HttpServerResponse.text(request.url)
    switch (request.url.split("?")[0]) {
      case "/refused":
        return Effect.succeed(HttpServerResponse.text("refused", { status: 401 }))
      case "/large":
        return Effect.succeed(HttpServerResponse.text(large))
      case "/held":
        return Effect.as(
          eventually("the test lets it go on", () => !seen.isHeld),
          text
        )
      case "/slow":
        return Effect.as(Effect.sleep("100 millis"), text)
      case "/endless":
        return Effect.onInterrupt(Effect.never, () => Effect.sync(() => void (seen.left += 1)))
      case "/body":
        return Effect.catch(withJsonBody(budget, "sender", "gateway", Effect.succeed(text)), ({ error }) =>
          Effect.succeed(HttpServerResponse.jsonUnsafe({ error }, { status: error.code }))
        )
      default:
        return Effect.as(Effect.yieldNow, text)
    }
  })

/** A server on a transport, until the scope closes: its URL or path, and what it has seen. */
const serve = Effect.fnUntraced(function* (transport: "TCP" | "TLS" | "Unix", limits: Partial<ServerLimits> = {}) {
  const { certificate: cert, key } = selfSignedCertificate("127.0.0.1")
  const limited = makeNodeServer({ ...serverSettings, ...limits }, transport === "TLS" ? { cert, key } : undefined)
  const at =
    transport === "Unix"
      ? { path: join(yield* temporaryDirectory, randomUUID().slice(0, 8)) }
      : { host: "127.0.0.1", port: 0 }
  const server = yield* listen(limited, at, "1 second")
  const seen: Seen = { begun: [], left: 0, isHeld: true }
  const budget = makeMemoryBudget(1024 * 1024)
  yield* server.serve(Effect.interruptible(answering(seen, budget)))
  const { address } = server
  const url =
    address._tag === "UnixPathAddress"
      ? address.path
      : HttpServer.formatAddress(address).replace("http:", transport === "TLS" ? "https:" : "http:")
  const { close, server: node } = limited
  return { budget, close, node, seen, url, connections: connectionsOf(node) }
}, Effect.provide(NodeHttpServer.layerHttpServices))

const untilConnected = (connections: Effect.Effect<number>, count: number) =>
  eventually(`${count} are connected`, connections, (connected) => connected === count)

/** Everything that a client receives from now on, until the connection closes or breaks. */
const received = (socket: Socket) =>
  Effect.callback<{ readonly text: string; readonly error: string | undefined }>((resume) => {
    let text = ""
    let error: string | undefined
    socket
      .on("data", (part: Buffer) => (text += part.toString("latin1")))
      .on("error", (given: NodeJS.ErrnoException) => (error = given.code))
      .once("end", () => socket.destroy())
      .once("close", () => resume(Effect.succeed({ text, error })))
      .resume()
  })

const answersIn = (text: string) => text.match(/HTTP\/1\.1 \d{3}/g) ?? []
const post = (path: string, body: string, headers: ReadonlyArray<Header> = []) =>
  render({ method: "POST", path, headers: [json, ...headers], body })
const close: Header = ["Connection", "close"]
/** A request whose body is sent in chunks of one byte. */
const inChunks = (path: string, count: number) => {
  const headers = [json, ["Transfer-Encoding", "chunked"] as const]
  const head = render({ method: "POST", path, headers }).toString("latin1")
  return `${head}${"1\r\nx\r\n".repeat(count)}0\r\n\r\n`
}

it.live("the kernel queues 1,000 connections that arrive at once until they are accepted", function* () {
  const { connections, url } = yield* serve("TCP")
  const port = Number(new URL(url).port)
  const sockets = Array.from({ length: 1_000 }, () => connect(port, "127.0.0.1"))
  // Behind their calls of the kernel, before anything is accepted.
  yield* Effect.promise(() => new Promise((resolve) => process.nextTick(resolve)))
  const isOf = new RegExp(`:\\w{4} \\w+:${port.toString(16).toUpperCase().padStart(4, "0")} 01 `)
  const established = readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .filter((line) => isOf.test(line))
  assert.lengthOf(established, 1_000)
  for (const socket of sockets) socket.destroy()
  yield* untilConnected(connections, 0)
})

it.live("a request that arrives before the server has its handler is answered", function* () {
  const limited = makeNodeServer(serverSettings)
  const sockets: Array<Socket> = []
  limited.server.on("connection", (socket: Socket) => void sockets.push(socket))
  const { address, serve } = yield* Effect.provide(
    listen(limited, { host: "127.0.0.1", port: 0 }, "1 second"),
    NodeHttpServer.layerHttpServices
  )
  const early = yield* open(HttpServer.formatAddress(address))
  yield* early.write(render({ path: "/", headers: [close] }))
  yield* eventually("the request has arrived", () => (sockets[0]?.bytesRead ?? 0) > 0)
  yield* serve(Effect.succeed(HttpServerResponse.text("answered")))
  assert.strictEqual((yield* early.answer).body, "answered")
})

it.live("a closing server answers a request that arrived while the process was blocked", function* () {
  const { close, connections, url } = yield* serve("TCP")
  const client = yield* open(url)
  yield* untilConnected(connections, 1)
  close()
  yield* client.write(render({ path: "/read" }))
  for (const unblocked = performance.now() + 1_100; performance.now() < unblocked;);
  assert.strictEqual((yield* client.answer).status, 200)
})

describe.concurrent.each([
  ["TCP", "TCP"],
  ["TLS", "TLS"],
  ["a Unix socket", "Unix"]
] as const)("HTTP over %s", (_, transport) => {
  it.live("an answer is written to the socket in one piece", function* () {
    const { node, url } = yield* serve(transport)
    let pieces = 0
    node.on(transport === "TLS" ? "secureConnection" : "connection", (socket: Socket) => {
      const [_write, _writev] = [socket._write.bind(socket), socket._writev?.bind(socket)]
      Object.assign(socket, {
        _write: (...given: Parameters<typeof _write>) => {
          pieces += 1
          _write(...given)
        },
        _writev: (...given: Parameters<NonNullable<typeof _writev>>) => {
          pieces += given[0].length
          _writev?.(...given)
        }
      })
    })
    const connection = yield* open(url)
    yield* connection.write(render({ path: "/one" }))
    assert.strictEqual((yield* connection.answer).body, "/one")
    assert.strictEqual(pieces, 1)
  })

  it.live("at most 8 pipelined requests wait; a client that sends more gets 503 after their answers", function* () {
    const { seen, url } = yield* serve(transport)
    const client = yield* deafClient(url)
    client.write(Buffer.concat(Array.from({ length: 2_000 }, (_, n) => render({ path: `/slow?${n}` }))))
    const { error, text } = yield* received(client)
    assert.isUndefined(error)
    assert.deepStrictEqual(
      seen.begun,
      Array.from({ length: 9 }, (_, n) => `/slow?${n}`)
    )
    assert.deepStrictEqual(answersIn(text), [...seen.begun.map(() => "HTTP/1.1 200"), "HTTP/1.1 503"])
  })

  it.live("pipelined requests within the limits are answered in order (control)", function* () {
    const { seen, url } = yield* serve(transport)
    const connection = yield* open(url)
    const paths = Array.from({ length: 9 }, (_, n) => `/?${n}`)
    yield* connection.write(Buffer.concat(paths.map((path) => render({ path }))))
    for (const path of paths) assert.strictEqual((yield* connection.answer).body, path)
    assert.deepStrictEqual(seen.begun, paths)
  })

  it.live.each([
    ["200 kB", 200_000, [close]],
    ["1 MB", 1_000_000, [close]],
    ["1 MB over a keep-alive connection", 1_000_000, []]
  ] as const)(
    "a client that reads only after it has sent a body of %s gets an early refusal",
    function* ([, bytes, headers]) {
      const { url } = yield* serve(transport)
      const client = yield* halfOpenClient(url)
      yield* Effect.callback<undefined>((resume) => {
        client.once("error", (error) => resume(Effect.die(error)))
        client.write(post("/refused", "x".repeat(bytes), headers), () => resume(Effect.undefined))
      })
      const { error, text } = yield* received(client)
      assert.isUndefined(error)
      assert.deepStrictEqual(answersIn(text), ["HTTP/1.1 401"])
      assert.match(text, /refused$/)
    }
  )

  it.live("a client that half-closes its connection gets all its answers", function* () {
    const { url } = yield* serve(transport)
    const client = yield* halfOpenClient(url)
    client.end(Buffer.concat([render({ path: "/slow" }), render({ path: "/other" })]))
    const { error, text } = yield* received(client)
    assert.isUndefined(error)
    assert.deepStrictEqual(answersIn(text), ["HTTP/1.1 200", "HTTP/1.1 200"])
  })

  it.live("a request is interrupted when its client disconnects", function* () {
    const { connections, seen, url } = yield* serve(transport)
    const client = yield* deafClient(url)
    client.write(render({ path: "/endless" }))
    yield* eventually("it has begun", () => seen.begun.length === 1)
    assert.strictEqual(seen.left, 0, "control")
    client.destroy()
    yield* eventually("it is given up", () => seen.left === 1)
    yield* untilConnected(connections, 0)
  })

  it.live("Expect: 100-continue is answered when the body is read; any other expectation is 417", function* () {
    const { url } = yield* serve(transport)
    const expecting = (value: string) =>
      render({ method: "POST", path: "/body", headers: [json, ["Expect", value], ["Content-Length", "2"]] })
    const connection = yield* open(url)
    yield* connection.write(expecting("100-continue"))
    assert.strictEqual((yield* connection.answer).status, 100)
    yield* connection.write("{}")
    assert.strictEqual((yield* connection.answer).body, "/body")
    const other = yield* open(url)
    yield* other.write(expecting("other"))
    assertRefused(yield* other.answer, "ExpectationFailed")
    yield* Effect.timeout(other.closed, "4 seconds")
  })

  it.live("a request to upgrade is answered in HTTP/1.1, and its body is read", function* () {
    const { node, url } = yield* serve(transport)
    const connection = yield* open(url)
    yield* connection.write(
      post("/body", "{}", [
        ["Connection", "Upgrade"],
        ["Upgrade", "h2c"]
      ])
    )
    assert.strictEqual((yield* connection.answer).body, "/body")
    assert.strictEqual(node.listenerCount("upgrade"), 0, "with one, versions of Node before 22.21 and 24.9 upgrade")
  })

  it.live("a client that does not read its answers is disconnected after the send timeout", function* () {
    const { connections, seen, url } = yield* serve(transport, { sendTimeout: Duration.millis(300) })
    const client = yield* deafClient(url)
    client.on("error", () => {}).write(Buffer.concat([1, 2, 3].map((n) => render({ path: `/large?${n}` }))))
    yield* eventually("it is answered", () => seen.begun.length > 0)
    yield* untilConnected(connections, 0)
  })

  it.live("a malformed request is answered 400 once, whatever the client sends after it", function* () {
    const { node, seen, url } = yield* serve(transport)
    const sockets: Array<Socket> = []
    node.on("clientError", (_error, socket: Socket) => sockets.push(socket))
    const client = yield* deafClient(url)
    client.write(Buffer.concat([render({ path: "/held" }), Buffer.from("nonsense\r\n\r\n")]))
    yield* eventually("it is noticed", () => sockets.length > 0)
    const names = ["close", "data", "end", "error", "finish"]
    const listeners = () => names.map((name) => sockets[0]?.listenerCount(name))
    const before = listeners()
    for (let n = 0; n < 5; n++) {
      client.write("more nonsense\r\n\r\n")
      yield* Effect.sleep("20 millis")
    }
    assert.deepStrictEqual(listeners(), before)
    seen.isHeld = false
    assert.deepStrictEqual(answersIn((yield* received(client)).text), ["HTTP/1.1 200", "HTTP/1.1 400"])
  })

  it.live("a body in 256 chunks is read, also after another on its connection", function* () {
    const { url } = yield* serve(transport)
    const connection = yield* open(url)
    for (const n of [1, 2]) {
      yield* connection.write(inChunks(`/body?${n}`, 256))
      assert.strictEqual((yield* connection.answer).body, `/body?${n}`)
    }
  })

  it.live.each<readonly [string, string, ReadonlyArray<number>]>([
    ["in 257 chunks is refused", inChunks("/body", 257), []],
    ["in 10,000 chunks, answered 401 early, ends its connection", inChunks("/refused", 10_000), [401]],
    ["in 257 chunks, pipelined after one in 256, is refused", inChunks("/slow", 256) + inChunks("/body", 257), [200]]
  ])("a body %s, and bodies on the next connection are read", function* ([, bytes, earlier]) {
    const { url } = yield* serve(transport)
    const connection = yield* open(url)
    yield* connection.write(bytes)
    for (const status of earlier) assert.strictEqual((yield* connection.answer).status, status)
    if (earlier[0] !== 401) {
      assertInvalid(yield* connection.answer, { path: [], message: "must be sent in at most 256 chunks" })
    }
    assert.strictEqual(yield* connection.closed, "")
    const next = yield* open(url)
    yield* next.write(inChunks("/body", 3) + String(post("/body", "{}")))
    for (const _ of [1, 2]) assert.strictEqual((yield* next.answer).status, 200)
  })

  it.live("malformed bytes after an early answer get no second answer", function* () {
    const { url } = yield* serve(transport)
    const client = yield* deafClient(url)
    client.write(render({ method: "POST", path: "/refused", headers: [["Transfer-Encoding", "chunked"]] }))
    client.write("2\r\n{}\r\n")
    yield* Effect.sleep("200 millis")
    client.write("no chunk\r\n")
    assert.deepStrictEqual(answersIn((yield* received(client)).text), ["HTTP/1.1 401"])
  })

  it.live("the memory of an incomplete body is given back at once when its client disconnects", function* () {
    const { budget, connections, url } = yield* serve(transport)
    const client = yield* deafClient(url)
    client.write(post("/body", "x".repeat(900), [["Content-Length", "250000"]]))
    yield* eventually("its first piece is held", () => budget.held.gateway > 0)
    client.destroy()
    yield* Effect.timeout(
      eventually("it is given back", () => budget.held.gateway === 0),
      "3 seconds"
    )
    yield* untilConnected(connections, 0)
  })
})
