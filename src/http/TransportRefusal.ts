import { type IncomingMessage, STATUS_CODES } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { ExpectationFailed, HeadersTooLarge, MethodNotAllowed, RequestTimeout } from "../contract/HttpErrors.ts"
import { InvalidParams, ServiceUnavailable } from "../domain/Errors.ts"
import { requestIdOf } from "./RequestHead.ts"

/** How long a client may take to read the last response, in milliseconds. */
const lingerTimeout = 1_000

/** The error with which the server refuses a request before the router gets it. */
export type Refusal =
  InvalidParams | MethodNotAllowed | RequestTimeout | ExpectationFailed | HeadersTooLarge | ServiceUnavailable

/** The refusal for the code of an error of Node's parser. */
export const refusalOfParseError = (code: string | undefined): Refusal => {
  switch (code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new RequestTimeout()
    case "HPE_HEADER_OVERFLOW":
      return new HeadersTooLarge()
    default:
      return InvalidParams.of({ path: [], message: "must be a well-formed HTTP request" })
  }
}

/** Encodes a refusal, with the id of the request if that is known. Its headers close the connection. */
export const encodeRefusal = ({ error }: Refusal, request?: IncomingMessage) => {
  const body = JSON.stringify({ error })
  const headers = {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(body)),
    "cache-control": "no-store",
    "x-request-id": requestIdOf(request?.headers["x-request-id"]),
    connection: "close",
    // Only CONNECT is refused here with 405: a tunnel has no allowed methods.
    ...(error.code === 405 ? { allow: "" } : {}),
    ...(error.code === 503 ? { "retry-after": "1" } : {})
  }
  return { body, headers, status: error.code }
}

/** Ends the response and discards input for a second: closing with unread bytes would reset TCP and lose it. */
export const linger = (socket: Duplex, text?: string) => {
  socket.end(text).resume()
  setTimeout(() => socket.destroy(), lingerTimeout).unref()
}

/** Writes an encoded refusal to the socket itself, not by a `ServerResponse`, and ends the connection. */
export const sendRefusal = (socket: Duplex, { body, headers, status }: ReturnType<typeof encodeRefusal>): void => {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  linger(socket, `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`)
}

const refusedStatuses = new WeakMap<IncomingMessage, number>()

/** Notes the status with which a request was refused while the rest of it arrived. */
export const markRefused = (request: IncomingMessage, status: number) => void refusedStatuses.set(request, status)

/** The noted status; undefined if the request was not refused. */
export const refusedStatusOf = (request: object) => refusedStatuses.get(request as IncomingMessage)

/** Ends a connection at once: resets TCP, which drops unsent bytes, or destroys a socket that Node cannot reset. */
export const cutOff = (socket: Socket): void => {
  try {
    socket.resetAndDestroy()
  } catch {
    socket.destroy()
  }
}
