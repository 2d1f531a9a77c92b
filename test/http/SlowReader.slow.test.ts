import type { RequestListener, Server } from "node:http"
import { type AddressInfo, connect, type Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { makeNodeServer } from "../../src/http/makeNodeServer.ts"
import type { ServerSettings } from "../../src/http/Server.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { eventually } from "../support/process/eventually.ts"

/** The server with some settings, over a listener of the test, until the scope closes. */
const serve = (settings: Partial<ServerSettings>, listener: RequestListener) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly server: Server; readonly port: number }>((resume) => {
      const server = makeNodeServer({ ...serverSettings, ...settings }).on("request", listener)
      server.listen(0, "127.0.0.1", () =>
        resume(Effect.succeed({ server, port: (server.address() as AddressInfo).port }))
      )
    }),
    ({ server }) =>
      Effect.callback<true>((resume) => {
        server.close(() => resume(Effect.succeed(true)))
        server.closeAllConnections()
      })
  )

/** A client that reads nothing. */
const deafClient = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<Socket>((resume) => {
      const socket = connect(port, "127.0.0.1").pause()
      socket.on("error", () => {}).once("connect", () => resume(Effect.succeed(socket)))
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

const connectionsOf = (server: Server) =>
  Effect.callback<number>((resume) => {
    server.getConnections((_error, count) => resume(Effect.succeed(count)))
  })

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

/** More than the kernel takes for a client that does not read. */
const large = Buffer.alloc(32 * 1024 * 1024)

describe("clients that do not read (F7)", () => {
  it.live("lose their connection once the time to send an answer is over", () =>
    Effect.gen(function* () {
      const { port, server } = yield* serve({ sendTimeout: Duration.millis(300) }, (_request, response) =>
        response.end(large)
      )
      for (let client = 0; client < 10; client++) (yield* deafClient(port)).write(request)
      yield* eventually("they are connected", connectionsOf(server), (count) => count === 10)
      yield* eventually("they are not connected any more", connectionsOf(server), (count) => count === 0)
    }).pipe(Effect.scoped)
  )

  it.live("lose it as well if they go on sending requests meanwhile", () =>
    Effect.gen(function* () {
      const { port, server } = yield* serve({ sendTimeout: Duration.millis(300) }, (_request, response) =>
        response.end(large)
      )
      const client = yield* deafClient(port)
      client.write(request)
      const timer = setInterval(() => client.write(request), 20)
      yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(timer)))
      yield* eventually("it is connected", connectionsOf(server), (count) => count === 1)
      yield* eventually("it is not connected any more", connectionsOf(server), (count) => count === 0)
    }).pipe(Effect.scoped)
  )

  it.live("keep it while the answer is not made yet", () =>
    Effect.gen(function* () {
      let finish = () => {}
      const { port, server } = yield* serve({ sendTimeout: Duration.millis(20) }, (_request, response) => {
        response.write("begun")
        finish = () => response.end()
      })
      const client = yield* deafClient(port)
      client.write(request)
      yield* eventually("it is connected", connectionsOf(server), (count) => count === 1)
      yield* Effect.sleep("200 millis")
      assert.strictEqual(yield* connectionsOf(server), 1)
      const received: Array<Buffer> = []
      client.on("data", (part: Buffer) => received.push(part)).resume()
      finish()
      yield* eventually("the answer is read", () => Buffer.concat(received).toString().endsWith("0\r\n\r\n"))
    }).pipe(Effect.scoped)
  )
})

describe("more connections than MAX_CONNECTIONS (F7)", () => {
  it.live("are dropped, and a place that becomes free is taken by the next", () =>
    Effect.gen(function* () {
      const { port, server } = yield* serve({ maxConnections: 2 }, (_request, response) => response.end("answer"))
      const [first] = [yield* deafClient(port), yield* deafClient(port)]
      yield* eventually("two are connected", connectionsOf(server), (count) => count === 2)
      const answer = Effect.callback<string>((resume) => {
        let received = ""
        const socket = connect(port, "127.0.0.1", () => socket.write(request))
        socket.setEncoding("utf8").on("data", (part: string) => {
          received += part
          socket.end()
        })
        socket.on("error", () => {}).once("close", () => resume(Effect.succeed(received)))
      })
      assert.strictEqual(yield* answer, "")
      first.destroy()
      yield* eventually("one is connected", connectionsOf(server), (count) => count === 1)
      assert.match(yield* answer, /^HTTP\/1\.1 200 /)
    }).pipe(Effect.scoped)
  )
})
