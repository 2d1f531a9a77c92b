import type { RequestListener, Server } from "node:http"
import { connect } from "node:net"
import { Duration, Effect } from "effect"
import { makeNodeServer } from "../../src/http/makeNodeServer.ts"
import type { ServerSettings } from "../../src/http/Server.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { connectionsOf, listening } from "../support/database/listen.ts"
import { deafClient } from "../support/http/RawConnection.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, it } from "../support/it.ts"

/** The server with some settings, over a listener of the test, until the scope closes. */
const serve = Effect.fnUntraced(function* (settings: Partial<ServerSettings>, listener: RequestListener) {
  const { answerWith, server } = makeNodeServer({ ...serverSettings, ...settings })
  answerWith(listener)
  return { server, port: yield* listening(server) }
})

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

const untilConnected = (server: Server, count: number) =>
  eventually(`${count} are connected`, connectionsOf(server), (connected) => connected === count)

describe("clients that do not read their answers (F7)", () => {
  it.live("keep their connection beyond the send timeout until the server has finished the answer", function* () {
    let finish = () => {}
    const { port, server } = yield* serve({ sendTimeout: Duration.millis(200) }, (_request, response) => {
      response.write("begun")
      finish = () => response.end()
    })
    const client = yield* deafClient(`http://127.0.0.1:${port}`)
    client.write(request)
    yield* untilConnected(server, 1)
    yield* Effect.sleep("600 millis")
    assert.strictEqual(yield* connectionsOf(server), 1)
    const received: Array<Buffer> = []
    client.on("data", (part: Buffer) => received.push(part)).resume()
    finish()
    yield* eventually("the answer is read", () => Buffer.concat(received).toString().endsWith("0\r\n\r\n"))
  })
})

describe("connections beyond MAX_CONNECTIONS (F7)", () => {
  it.live("are dropped until another connection closes", function* () {
    const { port, server } = yield* serve({ maxConnections: 2 }, (_request, response) => response.end("answer"))
    const [first] = [yield* deafClient(`http://127.0.0.1:${port}`), yield* deafClient(`http://127.0.0.1:${port}`)]
    yield* untilConnected(server, 2)
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
    yield* untilConnected(server, 1)
    assert.match(yield* answer, /^HTTP\/1\.1 200 /)
  })
})
