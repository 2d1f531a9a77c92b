import { createServer, type IncomingMessage, type RequestListener, type Server, ServerResponse } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { Server as NetServer, type Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Duration } from "effect"
import { ExpectationFailed, MethodNotAllowed } from "../contract/HttpErrors.ts"
import { InvalidParams, ServiceUnavailable } from "../domain/Errors.ts"
import { cutParsing, maxChunks } from "./ParserCut.ts"
import { clientGone, type RequestMeter } from "./RequestMeter.ts"
import { routableUrl, type Routing } from "./Routing.ts"
import {
  cutOff,
  encodeRefusal,
  linger,
  markRefused,
  type Refusal,
  refusalOfParseError,
  refusedStatusOf,
  sendRefusal
} from "./TransportRefusal.ts"

/** The limits for clients of a server. */
export interface ServerLimits {
  /** The server drops further connections. */
  readonly maxConnections: number
  /** How long an idle connection stays open for another request. */
  readonly keepAliveTimeout: Duration.Duration
  /** How long a client may read nothing of its answer. The server cuts it off after that time, at most twice that. */
  readonly sendTimeout: Duration.Duration
}

/** A certificate with its chain, and its private key, both in PEM. */
export interface Certificate {
  readonly cert: string
  readonly key: string
}

/** A server of Node that limits its clients. */
export interface LimitedServer {
  readonly server: Server
  /** Answers requests from now on, also those that have arrived already. */
  readonly answerWith: (listener: RequestListener) => void
  /**
   * Stops listening at once, answers requests that still arrive with `Connection: close`, and after a second ends the
   * connections that are idle. Calls `closed` when none is left. Node's own `close` ends idle connections first, and
   * keeps one that has not sent a request.
   */
  readonly close: (closed?: () => void) => void
}

/** How many requests of a connection may wait for earlier answers. */
const maxWaiting = 8

/** How long a client that has half-closed its connection may still get answers, in milliseconds. */
const halfClosedTimeout = 2_000

/** How long an idle connection may still send a request once the server is closing, in milliseconds. */
const gracePeriod = 1_000

/** A response that ignores `strictContentLength`, which Effect sets: with it, Node writes a needless empty chunk. */
class ClientResponse<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {}
Object.defineProperty(ClientResponse.prototype, "strictContentLength", { get: () => false, set: () => {} })

/** Options of every server; times in milliseconds. */
const nodeOptions = {
  headersTimeout: 5_000,
  requestTimeout: 8_000,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 16_384,
  // Joins repeated headers with a comma. By default, Node drops a second Content-Type or Authorization (D2, D8).
  joinDuplicateHeaders: true,
  // Node would answer a missing Host header without a body; `Envelope` answers it instead.
  requireHostHeader: false,
  // Answers a request to upgrade like any other. Node before 22.21 and 24.9 does so as nobody listens for upgrades.
  shouldUpgradeCallback: () => false,
  ServerResponse: ClientResponse
}

/** A client's connection. Invariant: it begins to answer a request once all earlier ones are answered. */
interface Connection {
  /** The responses to its unanswered requests, in order. The first one is being answered, the others wait. */
  readonly pending: Set<ServerResponse>
  /** The response to the newest request. */
  latest: ServerResponse | undefined
  isRefused: boolean
}

/** Makes a Node server that limits its clients and answers what it refuses with errors in envelopes. */
export const makeNodeServer = (
  { keepAliveTimeout, maxConnections, sendTimeout }: ServerLimits,
  certificate?: Certificate,
  { meter, routing }: { readonly meter?: RequestMeter; readonly routing?: Routing["Service"] } = {}
): LimitedServer => {
  const options = { ...nodeOptions, keepAliveTimeout: Duration.toMillis(keepAliveTimeout) }
  const server: Server =
    certificate === undefined
      ? createServer(options)
      : createTlsServer({
          ...options,
          ...certificate,
          allowHalfOpen: true,
          minVersion: "TLSv1.2",
          handshakeTimeout: nodeOptions.headersTimeout
        })
  Object.assign(server, { httpAllowHalfOpen: true, maxConnections, timeout: Duration.toMillis(sendTimeout) })
  const connections = new Map<Duplex, Connection>()
  let closing = false
  let answer: RequestListener | undefined

  /** Begins to answer the first request of a connection. */
  const begin = ({ pending: [first] }: Connection) => {
    if (first !== undefined && first.req.socket.writable) answer?.(first.req, first)
  }

  const end = (response: ServerResponse, connection: Connection, beganAt: number) => {
    if (!connection.pending.delete(response)) return
    // Discards the rest of the body: a connection that is closed with unread bytes is reset, which loses the answer.
    if (!response.req.complete) response.req.removeAllListeners("data").resume()
    const { method = "", url = "" } = response.req
    const status = response.headersSent ? response.statusCode : (refusedStatusOf(response.req) ?? clientGone)
    meter?.ended(method, routing?.routeOf(method, routableUrl(url)), status, (performance.now() - beganAt) / 1000)
    begin(connection)
  }

  /** Answers a request, after those before it on its connection. */
  const take: RequestListener = (request, response) => {
    const connection = connections.get(request.socket)
    if (connection === undefined) return
    const beganAt = performance.now()
    meter?.began()
    // Closes the connection after this response: the client could not learn the outcome of any later request.
    if (closing) response.shouldKeepAlive = false
    connection.latest = response
    connection.pending.add(response)
    response.once("close", () => end(response, connection, beganAt))
    if (connection.pending.size === 1) begin(connection)
  }

  /** Sends a connection's first refusal after the answers to all complete requests, then closes the connection. */
  const refuse = (socket: Duplex, refusal: Refusal, request?: IncomingMessage) => {
    const connection = connections.get(socket)
    if (connection === undefined || connection.isRefused) return
    connection.isRefused = true
    const { latest, pending } = connection
    const unfinished = latest?.req.complete === false ? latest : undefined
    const answerRefused = () => {
      if (!socket.writable) return
      // The request was answered before all of it arrived, and cannot be answered again.
      if (unfinished?.headersSent === true) return linger(socket)
      const refused = encodeRefusal(refusal, request ?? unfinished?.req)
      if (unfinished === undefined) {
        meter?.began()
        const { method = "", url = "" } = request ?? {}
        meter?.ended(method, routing?.routeOf(method, routableUrl(url)), refused.status, 0)
      } else markRefused(unfinished.req, refused.status)
      sendRefusal(socket, refused)
    }
    const lastComplete = Array.from(pending).findLast(({ req }) => req.complete)
    if (lastComplete === undefined) answerRefused()
    else lastComplete.once("close", answerRefused)
  }

  const handleConnection = (socket: Socket) => {
    const connection: Connection = { pending: new Set(), latest: undefined, isRefused: false }
    connections.set(socket, connection)
    const admits = (request: IncomingMessage) => {
      if (connection.pending.size > maxWaiting) refuse(socket, new ServiceUnavailable(), request)
      return !connection.isRefused
    }
    const refuseChunks = () =>
      refuse(socket, InvalidParams.of({ path: [], message: `must be sent in at most ${maxChunks} chunks` }))
    cutParsing(socket, admits, refuseChunks)
    socket
      .once("close", () => {
        connections.delete(socket)
        // Node before 24 does not close responses that wait.
        for (const response of connection.pending) response.emit("close")
      })
      // A client that half-closes still gets its answers, within a time limit.
      .once("end", () => {
        const timer = setTimeout(() => socket.destroy(), halfClosedTimeout).unref()
        socket.once("close", () => clearTimeout(timer))
      })
  }

  if (meter !== undefined) {
    server.on("drop", meter.dropped).on("connection", (socket) => {
      meter.connected()
      socket.once("close", meter.disconnected)
    })
  }
  server
    .on(certificate === undefined ? "connection" : "secureConnection", handleConnection)
    .on("request", take)
    .on("checkContinue", take)
    .on("checkExpectation", (request: IncomingMessage) => refuse(request.socket, new ExpectationFailed(), request))
    .on("clientError", (error: NodeJS.ErrnoException, socket: Duplex) =>
      refuse(socket, refusalOfParseError(error.code))
    )
    .on("connect", (request, socket) => {
      // Node no longer handles errors of this socket.
      socket.on("error", () => {}).resume()
      refuse(socket, new MethodNotAllowed(), request)
    })
    .on("timeout", (socket: Socket) => {
      const [current] = connections.get(socket)?.pending ?? []
      // Before the answer is complete, the service may be what is slow, not the client.
      if (current === undefined || current.writableEnded) cutOff(socket)
    })

  return {
    server,
    answerWith: (listener) => {
      answer = listener
      for (const connection of connections.values()) begin(connection)
    },
    close: (closed) => {
      closing = true
      for (const { pending } of connections.values()) {
        for (const response of pending) response.shouldKeepAlive = false
      }
      NetServer.prototype.close.call(server, closed)
      const endIdle = () => {
        for (const [socket, { pending }] of connections) if (pending.size === 0) socket.destroy()
      }
      // `setImmediate` lets Node first read requests that have arrived: after a blocked turn, it runs timers before that.
      const timer = setTimeout(() => setImmediate(endIdle), gracePeriod)
      server.once("close", () => clearTimeout(timer))
    }
  }
}
