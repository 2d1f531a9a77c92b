import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { Server as NetServer, type Socket } from "node:net"
import type { Duplex } from "node:stream"
import { TLSSocket } from "node:tls"
import { Duration } from "effect"
import { ExpectationFailed, HeadersTooLarge, MethodNotAllowed, RequestTimeout } from "../api/HttpErrors.ts"
import { InvalidParams } from "../domain/Errors.ts"
import { requestIdOf } from "./RequestHeaders.ts"
import { clientGone, refusals, type RequestMeter } from "./RequestMeter.ts"
import { allowedMethods, routableUrl, routeOf } from "./Routing.ts"

/** What the server grants its clients. */
export interface ServerLimits {
  /** Further connections are dropped. */
  readonly maxConnections: number
  readonly keepAliveTimeout: Duration.Duration
  /** After how long without progress a client that does not read its answer is cut off, at the latest after twice that. */
  readonly sendTimeout: Duration.Duration
}

/** A certificate, with the chain below it, and its private key, both in PEM. */
export interface Certificate {
  readonly cert: string
  readonly key: string
}

const limits = {
  headersTimeout: 5_000,
  requestTimeout: 8_000,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 16_384,
  // Joins repeated headers with a comma: by default Node drops a second Content-Type or Authorization (D2, D8).
  joinDuplicateHeaders: true,
  // Node's own answer to a missing Host header has no body.
  requireHostHeader: false,
  // A client that offers to upgrade is answered in HTTP/1.1.
  shouldUpgradeCallback: () => false
}

/** How long a client may take to read a refusal, in milliseconds. */
const lingerTimeout = 1_000

/** How long an idle connection may still send a request once the server closes, in milliseconds. */
const gracePeriod = 1_000

type Refusal = InvalidParams | MethodNotAllowed | RequestTimeout | ExpectationFailed | HeadersTooLarge

const refusalOf = (code: string | undefined): Refusal => {
  switch (code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new RequestTimeout()
    case "HPE_HEADER_OVERFLOW":
      return new HeadersTooLarge()
    default:
      return InvalidParams.of({ path: [], message: "must be a well-formed HTTP request" })
  }
}

/** The answer to what never becomes a request of the router. */
const answerOf = ({ error }: Refusal, request?: IncomingMessage) => {
  const body = JSON.stringify({ error })
  const headers = {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(body)),
    "cache-control": "no-store",
    "x-request-id": requestIdOf(request?.headers["x-request-id"]),
    connection: "close",
    ...(error.code === 405 ? { allow: allowedMethods.join(", ") } : {})
  }
  return { body, headers, status: error.code }
}

/** What Node emits for a request. */
const requestEvents: ReadonlySet<string> = new Set(["request", "checkContinue", "checkExpectation"])

/** A connection answers one request after the other. While one waits, nothing more is read. */
interface Connection {
  isAnswering: boolean
  /** The one that is not closed yet. */
  response: ServerResponse | undefined
  readonly waiting: Array<{ readonly response: ServerResponse; readonly answer: () => void }>
}

/** The kernel forgets what a client has not read only if the connection is reset, which Node cannot do through TLS. */
export const cutOff = (socket: Socket) => {
  if (socket instanceof TLSSocket) socket.destroy()
  else socket.resetAndDestroy()
}

const pendingOf = ({ response, waiting }: Connection): ReadonlyArray<ServerResponse> =>
  [response, ...waiting.map(({ response }) => response)].filter((one) => one !== undefined)

/** Nothing that a client sends after the last response may take effect: the client could not learn the outcome. */
const makeLast = (response: ServerResponse) => {
  response.shouldKeepAlive = false
  response.once("close", () => response.req.socket.destroySoon())
}

/**
 * A Node server with limits whose own refusals are envelopes. Its `close` stops listening at once, answers requests
 * that still arrive with `Connection: close`, and ends idle connections: Node's own would keep a fresh one open.
 */
export const makeNodeServer = (
  { keepAliveTimeout, maxConnections, sendTimeout }: ServerLimits,
  certificate?: Certificate,
  meter?: RequestMeter
): Server => {
  const options = { ...limits, keepAliveTimeout: Duration.toMillis(keepAliveTimeout) }
  const server: Server =
    certificate === undefined
      ? createServer(options)
      : createTlsServer({ ...options, ...certificate, minVersion: "TLSv1.2", handshakeTimeout: limits.headersTimeout })
  Object.assign(server, { maxConnections, timeout: Duration.toMillis(sendTimeout) })
  const connections = new Map<Duplex, Connection>()
  let closing = false

  const begin = (request: IncomingMessage, response: ServerResponse) => {
    const { method = "", socket, url = "" } = request
    const began = performance.now()
    meter?.began()
    if (closing) makeLast(response)
    response.on("timeout", (socket: Socket) => {
      if (response.writableEnded) cutOff(socket)
    })
    response.once("close", () => {
      const status = response.headersSent ? response.statusCode : (refusals.get(request) ?? clientGone)
      meter?.ended(method, routeOf(method, routableUrl(url)), status, (performance.now() - began) / 1000)
      const connection = connections.get(socket)
      if (connection === undefined) return
      connection.response = undefined
      if (!response.shouldKeepAlive || !socket.writable) return
      const next = connection.waiting.shift()
      connection.isAnswering = next !== undefined
      connection.response = next?.response
      next?.answer()
      if (next !== undefined && connection.waiting.length === 0) socket.resume()
    })
  }
  const emit = server.emit.bind(server) as (...given: ReadonlyArray<unknown>) => boolean
  server.emit = (event: string, ...given: ReadonlyArray<unknown>) => {
    if (!requestEvents.has(event)) return emit(event, ...given)
    const [request, response] = given as [IncomingMessage, ServerResponse]
    begin(request, response)
    const connection = connections.get(request.socket)
    if (connection?.isAnswering === true) {
      connection.waiting.push({ response, answer: () => emit(event, request, response) })
      request.socket.pause()
      return true
    }
    if (connection !== undefined) Object.assign(connection, { isAnswering: true, response })
    return emit(event, request, response)
  }

  /** Answers and closes the connection, once the requests that have arrived in full are answered. */
  const refuse = (socket: Duplex, refusal: Refusal, request?: IncomingMessage) => {
    const connection = connections.get(socket)
    const responses = connection === undefined ? [] : pendingOf(connection)
    const unfinished = responses.find(({ req }) => !req.complete)
    const answer = () => {
      if (!socket.writable) return
      const { body, headers, status } = answerOf(refusal, request ?? unfinished?.req)
      if (unfinished === undefined) {
        meter?.began()
        meter?.ended(request?.method ?? "", undefined, status, 0)
      } else refusals.set(unfinished.req, status)
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
      socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`)
      setTimeout(() => socket.destroy(), lingerTimeout).unref()
    }
    const last = responses.findLast(({ req }) => req.complete)
    if (last === undefined) answer()
    else last.once("close", answer)
  }

  if (meter !== undefined) {
    server.on("drop", meter.dropped).on("connection", (socket) => {
      meter.connected()
      socket.once("close", meter.disconnected)
    })
  }
  server
    .on(certificate === undefined ? "connection" : "secureConnection", (socket: Socket) => {
      const connection: Connection = { isAnswering: false, response: undefined, waiting: [] }
      connections.set(socket, connection)
      socket
        .once("close", () => {
          connections.delete(socket)
          for (const { response } of connection.waiting) response.emit("close")
        })
        // Node resumes it whenever an answer is sent.
        .on("resume", () => {
          if (connection.waiting.length > 0) socket.pause()
        })
    })
    .on("checkExpectation", (request, response) => {
      const { body, headers, status } = answerOf(new ExpectationFailed(), request)
      response.writeHead(status, headers).end(body)
    })
    .on("clientError", (error: NodeJS.ErrnoException, socket) => refuse(socket, refusalOf(error.code)))
    .on("connect", (request, socket) => {
      // Node no longer handles the errors of this socket.
      socket.on("error", () => {}).resume()
      refuse(socket, new MethodNotAllowed(), request)
    })
  server.close = (callback) => {
    closing = true
    for (const connection of connections.values()) pendingOf(connection).forEach(makeLast)
    NetServer.prototype.close.call(server, callback)
    const end = setTimeout(() => {
      for (const [socket, connection] of connections) if (pendingOf(connection).length === 0) socket.destroy()
    }, gracePeriod)
    server.once("close", () => clearTimeout(end))
    return server
  }
  return server
}
