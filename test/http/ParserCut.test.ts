import { createServer, type IncomingMessage } from "node:http"
import { Duplex } from "node:stream"
import { canCut, cutParsing, maxChunks } from "../../src/http/ParserCut.ts"
import { assert, describe, it } from "../support/it.ts"

const makeSocket = () => new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done() })

describe("the cut of Node's parser", () => {
  it("needs two fields, which this version of Node has, and notices that one is gone", () => {
    assert.isTrue(canCut())
    for (const parser of [{}, { onIncoming: () => 0 }, { 3: function parserOnBody() {} }]) {
      const socket = makeSocket()
      Object.defineProperty(socket, "parser", { get: () => parser, set: () => {} })
      assert.isFalse(canCut(socket))
    }
  })

  /** Feeds bytes to a server whose parser is cut. Returns the requests that it emits, and how often it was cut. */
  const parse = async (bytes: string, admitted = Infinity) => {
    const socket = makeSocket()
    const requests: Array<{ readonly url: string; body: string; ended: boolean }> = []
    let [asked, cuts] = [0, 0]
    const server = createServer((request: IncomingMessage) => {
      const seen = { url: request.url ?? "", body: "", ended: false }
      requests.push(seen)
      request.on("data", (chunk: Buffer) => (seen.body += chunk.toString())).on("end", () => (seen.ended = true))
    })
    server.emit("connection", socket)
    cutParsing(
      socket,
      () => (asked += 1) <= admitted,
      () => (cuts += 1)
    )
    socket.push(bytes)
    await new Promise((resolve) => setTimeout(resolve, 20))
    socket.destroy()
    return { requests, asked, cuts }
  }
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
  const chunked = (path: string, chunks: number) =>
    `POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${"1\r\nx\r\n".repeat(chunks)}0\r\n\r\n`

  it("ends the parsing of a read at the first request that is not admitted", async () => {
    const { asked, requests } = await parse(get("/1") + get("/2") + get("/3").repeat(1000), 2)
    assert.deepStrictEqual(
      requests.map(({ url }) => url),
      ["/1", "/2"]
    )
    assert.strictEqual(asked, 3)
    assert.lengthOf((await parse(get("/").repeat(100))).requests, 100, "control")
  })

  it("keeps out what comes after the most chunks, and the end of that body", async () => {
    const { cuts, requests } = await parse(chunked("/", maxChunks + 1))
    assert.strictEqual(cuts, 1)
    assert.deepStrictEqual(requests, [{ url: "/", body: "x".repeat(maxChunks), ended: false }])
    const whole = await parse(chunked("/1", maxChunks) + chunked("/2", maxChunks))
    assert.strictEqual(whole.cuts, 0)
    assert.isTrue(
      whole.requests.every(({ body, ended }) => ended && body.length === maxChunks),
      "control"
    )
  })

  it("leaves the parser as it was for the next connection", async () => {
    await parse(chunked("/", maxChunks + 1))
    const { requests } = await parse(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n${"x".repeat(300)}`)
    assert.isTrue(requests[0]?.ended)
    assert.isTrue(canCut())
  })
})
