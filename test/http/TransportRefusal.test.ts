import type { IncomingMessage } from "node:http"
import { Duplex } from "node:stream"
import { vi } from "vitest"
import { ExpectationFailed, HeadersTooLarge, MethodNotAllowed, RequestTimeout } from "../../src/contract/HttpErrors.ts"
import { InvalidParams, ServiceUnavailable } from "../../src/domain/Errors.ts"
import {
  encodeRefusal,
  linger,
  type Refusal,
  refusalOfParseError,
  sendRefusal
} from "../../src/http/TransportRefusal.ts"
import { assertInvalid, assertRefused, refusals } from "../support/http/Refusal.ts"
import { assert, describe, it } from "../support/it.ts"

/** A socket that notes what is written to it, and has something left to read. */
const makeSocket = () => {
  const written: Array<string> = []
  const socket = new Duplex({
    read: () => {},
    write: (bytes: Buffer, _encoding, done) => (written.push(bytes.toString()), done())
  })
  socket.push("more")
  return { socket, written }
}

const issue = { path: [], message: "must be a well-formed HTTP request" }
const malformed = InvalidParams.of(issue)

describe("a request that never reaches the router", () => {
  it.for<readonly [error: string, name: string, code: string | undefined, refusal: Refusal]>([
    ["the parse error ERR_HTTP_REQUEST_TIMEOUT", "RequestTimeout", "ERR_HTTP_REQUEST_TIMEOUT", new RequestTimeout()],
    ["the parse error HPE_HEADER_OVERFLOW", "HeadersTooLarge", "HPE_HEADER_OVERFLOW", new HeadersTooLarge()],
    ["the parse error HPE_INVALID_METHOD", "InvalidParams", "HPE_INVALID_METHOD", malformed],
    ["an error without a code", "InvalidParams", undefined, malformed]
  ])("for which Node reports %s is refused with %s", ([, , code, refusal]) => {
    assert.deepStrictEqual<unknown>(refusalOfParseError(code).error, refusal.error)
  })

  it.for<readonly [name: string, refusal: Refusal, more: Readonly<Record<string, string>>]>([
    ["InvalidParams", malformed, {}],
    ["MethodNotAllowed", new MethodNotAllowed(), { allow: "" }],
    ["RequestTimeout", new RequestTimeout(), {}],
    ["ExpectationFailed", new ExpectationFailed(), {}],
    ["HeadersTooLarge", new HeadersTooLarge(), {}],
    ["ServiceUnavailable", new ServiceUnavailable(), { "retry-after": "1" }]
  ])("gets a complete %s response with the header Connection: close", ([, refusal, more]) => {
    const request = { headers: { "x-request-id": "its-own-id" } } as unknown as IncomingMessage
    const { body, headers, status } = encodeRefusal(refusal, request)
    if (refusal._tag === "InvalidParams") assertInvalid({ body, headers, status }, issue)
    else assertRefused({ body, headers, status }, refusal._tag)
    assert.deepStrictEqual(headers, {
      "content-type": "application/json",
      "content-length": String(body.length),
      "cache-control": "no-store",
      "x-request-id": "its-own-id",
      connection: "close",
      ...more
    })
    const anonymous = [encodeRefusal(refusal), encodeRefusal(refusal)].map(({ headers }) => headers["x-request-id"])
    assert.lengthOf(new Set(anonymous), 2)

    const { socket, written } = makeSocket()
    sendRefusal(socket, { body, headers, status })
    const lines = Object.entries(headers).map((header) => header.join(": "))
    assert.strictEqual(written[0]?.split("\r\n")[0]?.slice(0, 12), `HTTP/1.1 ${status}`)
    assert.notMatch(written[0] ?? "", /undefined/)
    assert.deepStrictEqual(written[0]?.split("\r\n").slice(1), [...lines, "", body])
    assert.strictEqual(status, refusals[refusal._tag][0])
    socket.destroy()
  })

  it("keeps its connection open for one second to read the answer, and discards further input", () => {
    vi.useFakeTimers({ toFake: ["setTimeout"] })
    try {
      for (const text of ["an answer", undefined]) {
        const { socket, written } = makeSocket()
        linger(socket, text)
        assert.deepStrictEqual(written, text === undefined ? [] : [text])
        assert.isTrue(socket.writableEnded && socket.readableFlowing === true)
        vi.advanceTimersByTime(999)
        assert.isFalse(socket.destroyed)
        vi.advanceTimersByTime(1)
        assert.isTrue(socket.destroyed)
      }
    } finally {
      vi.useRealTimers()
    }
  })
})
