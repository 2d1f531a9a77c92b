import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { Duplex } from "node:stream"
import {
  ExpectationFailed,
  HeadersTooLarge,
  InvalidParams,
  MethodNotAllowed,
  RequestTimeout
} from "../domain/Errors.ts"
import { closeGracefully } from "./closeGracefully.ts"
import { requestIdOf } from "./RequestId.ts"

const limits = {
  headersTimeout: 5_000,
  requestTimeout: 8_000,
  keepAliveTimeout: 5_000,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 16_384,
  // Two Authorization headers arrive as one, joined by a comma, and are refused (D2).
  joinDuplicateHeaders: true,
  // Node's own answer to a missing Host header has no body.
  requireHostHeader: false,
  // A client that offers another protocol is answered in this one.
  shouldUpgradeCallback: () => false
}

type Refusal = InvalidParams | MethodNotAllowed | RequestTimeout | ExpectationFailed | HeadersTooLarge

const badRequest = (message: string) => InvalidParams.of({ path: [], message })

const headersOf = (request_id: string, body: string) => ({
  "content-type": "application/json",
  "content-length": String(Buffer.byteLength(body)),
  "cache-control": "no-store",
  "x-request-id": request_id,
  connection: "close"
})

const reasons: Record<number, string> = {
  400: "Bad Request",
  405: "Method Not Allowed",
  408: "Request Timeout",
  431: "Request Header Fields Too Large"
}

/** The id that the latest request of a connection gave, for an answer to what could not be read of it. */
const latestId = new WeakMap<Duplex, string>()

const givenId = ({ headers }: IncomingMessage) => {
  const given = headers["x-request-id"]
  return typeof given === "string" ? given : undefined
}

/** Writes an envelope where Node has no response to write to, and closes the connection. */
const refuseSocket = (socket: Duplex, { error }: Refusal, extra: Record<string, string> = {}) => {
  if (!socket.writable) return void socket.destroy()
  const body = JSON.stringify({ error })
  const head = Object.entries({ ...headersOf(requestIdOf(latestId.get(socket)), body), ...extra })
  const lines = head.map(([name, value]) => `${name}: ${value}\r\n`).join("")
  socket.end(`HTTP/1.1 ${error.code} ${reasons[error.code]}\r\n${lines}\r\n${body}`)
}

const refusalOf = (code: string | undefined): Refusal => {
  switch (code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new RequestTimeout()
    case "HPE_HEADER_OVERFLOW":
      return new HeadersTooLarge()
    default:
      return badRequest("must be a well-formed HTTP request")
  }
}

const refuseResponse = (request: IncomingMessage, response: ServerResponse, { error }: Refusal) => {
  const body = JSON.stringify({ error })
  response.writeHead(error.code, headersOf(requestIdOf(givenId(request)), body)).end(body)
}

const hostHeaders = ({ rawHeaders }: IncomingMessage) =>
  rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === "host").length

/** Refuses requests without exactly one Host header (RFC 9112, 3.2) before any other listener sees them. */
const withHost = (server: Server): Server => {
  const emit = server.emit.bind(server)
  server.emit = (event: string, ...args: Array<unknown>) => {
    if (event !== "request" && event !== "checkContinue") return emit(event, ...args)
    const [request, response] = args as [IncomingMessage, ServerResponse]
    const id = givenId(request)
    if (id !== undefined) {
      latestId.set(request.socket, id)
      response.once("close", () => latestId.delete(request.socket))
    }
    const expected = request.httpVersion === "1.0" ? [0, 1] : [1]
    if (expected.includes(hostHeaders(request))) return emit(event, ...args)
    refuseResponse(request, response, badRequest("must have exactly one Host header"))
    return true
  }
  return server
}

/** A Node server with limits on time and size, whose own refusals are envelopes too. */
export const makeNodeServer = (): Server =>
  withHost(
    closeGracefully(
      createServer(limits)
        .on("clientError", (error: NodeJS.ErrnoException, socket) => refuseSocket(socket, refusalOf(error.code)))
        .on("checkExpectation", (request, response) => refuseResponse(request, response, new ExpectationFailed()))
        .on("connect", (_request, socket) => refuseSocket(socket, new MethodNotAllowed(), { allow: "GET, HEAD, POST" }))
    )
  )
