import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { Server as NetServer, type Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Duration } from "effect"
import { ExpectationFailed, MethodNotAllowed } from "../contract/HttpErrors.ts"
import { InvalidParams, ServiceUnavailable } from "../domain/Errors.ts"
import { ArrivingRequest } from "./ArrivingRequest.ts"
import { ClientResponse, Connection, cutOff } from "./Connection.ts"
import { clientGone, type RequestMeter } from "./RequestMeter.ts"
import { routableUrl, type Routing } from "./Routing.ts"
import { encodeRefusal, linger, type Refusal, refusalOfParseError, sendRefusal } from "./TransportRefusal.ts"

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

/** How long a client that has half-closed its connection may still get answers, in milliseconds. */
const halfClosedTimeout = 2_000

/** How long an idle connection may still send a request once the server is closing, in milliseconds. */
const gracePeriod = 1_000

/** The events that Node emits for a request. */
const requestEvents: ReadonlySet<string> = new Set(["request", "checkContinue", "checkExpectation"])

/** `HTTPParser.kOnBody`, `kOnMessageComplete` and `kOnExecute` of Node. */
const [onBody, onMessageComplete, onExecute] = [3, 4, 5] as const

/**
 * Maximum chunks in the bodies of a connection's unanswered requests. A chunk of one byte takes as long to parse as a long
 * one, and a read brings up to 10,000 of them, before the requests of other connections.
 */
const maxChunks = 2_048

/** Node's parser of a connection. It parses all requests of a read before anything else runs. */
interface Parser {
  onIncoming: (request: ArrivingRequest & { upgrade: boolean }, keepAlive: boolean) => number
  /** Called with each chunk of a body, unless undefined. */
  [onBody]: ((chunk: Buffer) => void) | undefined
  /** Called at the end of a request, unless undefined. */
  [onMessageComplete]: (() => void) | undefined
  /** Called with the number of parsed bytes of the read, or with the error that ended parsing. */
  [onExecute]: (result: number | Error) => void
  readonly execute: (bytes: Buffer) => number | Error
  readonly getCurrentBuffer: () => Buffer
}

/** A result of `onIncoming` that ends the parsing of a read. */
const stopParsing = 2

/** Estimates the memory of a request's head, in bytes; each string takes 32 bytes besides its characters. */
const headBytesOf = ({ rawHeaders, url = "" }: IncomingMessage) =>
  rawHeaders.reduce((sum, { length }) => sum + length + 32, url.length)

/** A client's connection. Nothing is read from it while a request waits, and no request is taken after a refusal. */
class ClientConnection extends Connection<ClientResponse<ArrivingRequest>> {
  /** The response to the newest request. Cleared once it is closed, unless part of the request has yet to arrive. */
  latest: ClientResponse<ArrivingRequest> | undefined
  isRefused = false
}

/** Closes the connection after this response: the client could not learn the outcome of any later request. */
const makeLast = (response: ServerResponse) => {
  response.shouldKeepAlive = false
}

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
  IncomingMessage: ArrivingRequest,
  ServerResponse: ClientResponse
}

/**
 * Makes a Node server that limits its clients and answers what it refuses with errors in envelopes. `close` stops
 * listening at once, answers requests that still arrive with `Connection: close`, and after a second ends the
 * connections that are idle. Node's `close` would keep a connection open that has not sent a request.
 */
export const makeNodeServer = (
  { keepAliveTimeout, maxConnections, sendTimeout }: ServerLimits,
  certificate?: Certificate,
  { meter, routing }: { readonly meter?: RequestMeter; readonly routing?: Routing["Service"] } = {}
): Server => {
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
  const connections = new Map<Duplex, ClientConnection>()
  let closing = false
  let hasHandler = false
  /** Requests that arrived before the server had a handler: Effect adds it after it listens. */
  const early: Array<() => void> = []

  /** Discards the rest of the request. Then begins the connection's next request, or closes after the last. */
  const endResponse = (response: ClientResponse<ArrivingRequest>, connection: ClientConnection) => {
    const { req: request } = response
    const { hasArrived, socket } = request
    const isLast = !response.shouldKeepAlive || closing
    // If the rest is too long to discard, the connection ends.
    request.discard(() => linger(socket))
    if (hasArrived && connection.latest === response) connection.latest = undefined
    if (connection.current === response) connection.end()
    if (!socket.writable) return
    if (isLast && hasArrived) return socket.destroySoon()
    if (isLast) return linger(socket)
    connection.beginNext()
    if (connection.waiting.length === 0) socket.resume()
  }

  /** Measures a request until its response closes, and begins it, or makes it wait for those before it. */
  const trackResponse = (response: ClientResponse<ArrivingRequest>, connection: ClientConnection) => {
    const { req: request } = response
    const { method = "", url = "" } = request
    const startedAt = performance.now()
    meter?.began()
    if (closing) makeLast(response)
    connection.latest = response
    response.on("timeout", (socket: Socket) => {
      // Before the answer is complete, the service may be what is slow, not the client.
      if (response.writableEnded) cutOff(socket)
    })
    response.once("close", () => {
      const status = response.headersSent ? response.statusCode : (request.refusedWith ?? clientGone)
      meter?.ended(method, routing?.routeOf(method, routableUrl(url)), status, (performance.now() - startedAt) / 1000)
      endResponse(response, connection)
    })
    if (connection.add(response, () => headBytesOf(request))) request.socket.pause()
  }
  // Intercepts the events of requests, to answer the requests of a connection in order.
  const emit = server.emit.bind(server) as (event: string, ...args: ReadonlyArray<unknown>) => boolean
  server.emit = (event: string, ...args: ReadonlyArray<unknown>) => {
    const [request, response] = args as [ArrivingRequest, ClientResponse<ArrivingRequest>]
    const connection = requestEvents.has(event) ? connections.get(request.socket) : undefined
    if (connection === undefined) return emit(event, ...args)
    // If the function were assigned as a literal, V8 would allocate it, and what it captures, in the old generation.
    const answer = () => {
      if (hasHandler) emit(event, request, response)
      else early.push(answer)
    }
    // Waits for the part of the body that the current read brings: most bodies arrive together with their head.
    const begin = () => process.nextTick(answer)
    response.begin = begin
    trackResponse(response, connection)
    return true
  }
  const on = server.on.bind(server) as (event: string, ...args: ReadonlyArray<unknown>) => Server
  server.on = (event: string, ...args: ReadonlyArray<unknown>) => {
    // Adds no listener for upgrades: without one, Node answers requests to upgrade like any others.
    if (event === "upgrade") return server
    on(event, ...args)
    if (event === "request") {
      hasHandler = true
      for (const begin of early.splice(0)) begin()
    }
    return server
  }

  /** Sends a connection's first refusal after the answers to all complete requests, then closes the connection. */
  const refuse = (socket: Duplex, refusal: Refusal, request?: IncomingMessage) => {
    const connection = connections.get(socket)
    if (connection === undefined || connection.isRefused) return
    connection.isRefused = true
    const { latest, pending } = connection
    const unfinished = latest?.req.complete === false ? latest : undefined
    const answer = () => {
      if (!socket.writable) return
      // The request was answered before all of it arrived, and cannot be answered again.
      if (unfinished?.headersSent === true) return linger(socket)
      const refused = encodeRefusal(refusal, request ?? unfinished?.req)
      if (unfinished === undefined) {
        meter?.began()
        meter?.ended(request?.method ?? "", undefined, refused.status, 0)
      } else unfinished.req.refusedWith = refused.status
      sendRefusal(socket, refused)
    }
    const lastComplete = pending.findLast(({ req }) => req.complete)
    if (lastComplete === undefined) answer()
    else lastComplete.once("close", answer)
  }

  /** Registers a new connection, refuses requests beyond its limits, and pauses it while requests wait. */
  const handleConnection = (socket: Socket) => {
    const connection = new ClientConnection()
    connections.set(socket, connection)
    const { parser } = socket as Socket & { readonly parser: Parser }
    const { onIncoming, [onExecute]: onParsed } = parser
    let upgradeRequest: ArrivingRequest | undefined
    let chunks = 0
    const countChunk = () => {
      chunks += 1
      if (chunks !== maxChunks + 1) return
      const { [onBody]: takeChunk, [onMessageComplete]: complete } = parser
      Object.assign(parser, { [onBody]: undefined, [onMessageComplete]: undefined })
      // Otherwise, the cut body would be complete at its end. Node uses the parser again for other connections.
      socket.once("close", () => Object.assign(parser, { [onBody]: takeChunk, [onMessageComplete]: complete }))
      refuse(socket, InvalidParams.of({ path: [], message: "must be sent in at most 2,048 chunks" }))
    }
    parser.onIncoming = (request, keepAlive) => {
      if (connection.current === undefined) chunks = 0
      if (request.headers["transfer-encoding"] !== undefined) request.onChunk = countChunk
      if (!connection.isRefused && connection.isFullFor(() => headBytesOf(request))) {
        refuse(socket, new ServiceUnavailable(), request)
        socket.pause()
      }
      if (connection.isRefused) {
        // Otherwise, Node would detach the socket from HTTP for an upgrade or CONNECT, and not handle its errors.
        request.upgrade = false
        return stopParsing
      }
      if (request.upgrade && request.method !== "CONNECT") upgradeRequest = request
      return onIncoming(request, keepAlive)
    }
    // The parser stops after a request to upgrade, and Node would drop the rest of the read: parses that as well.
    parser[onExecute] = (firstResult) => {
      let rest = upgradeRequest && parser.getCurrentBuffer()
      let result = firstResult
      while (rest !== undefined && upgradeRequest?.complete === true && typeof result === "number") {
        upgradeRequest = undefined
        rest = rest.subarray(result)
        if (rest.length > 0) result = parser.execute(rest)
      }
      onParsed(result)
    }
    socket
      .once("close", () => {
        connections.delete(socket)
        for (const response of connection.close()) response.emit("close")
      })
      // Node resumes the socket after every answer.
      .on("resume", () => {
        if (connection.waiting.length > 0) socket.pause()
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
    .on("checkExpectation", (request, response) => {
      const { body, headers, status } = encodeRefusal(new ExpectationFailed(), request)
      response.writeHead(status, headers).end(body)
    })
    .on("clientError", (error: NodeJS.ErrnoException, socket) => refuse(socket, refusalOfParseError(error.code)))
    .on("connect", (request, socket) => {
      // Node no longer handles errors of this socket.
      socket.on("error", () => {}).resume()
      refuse(socket, new MethodNotAllowed(), request)
    })
  server.close = (callback) => {
    closing = true
    for (const connection of connections.values()) connection.pending.forEach(makeLast)
    NetServer.prototype.close.call(server, callback)
    const endIdle = () => {
      for (const [socket, connection] of connections) if (connection.pending.length === 0) socket.destroy()
    }
    // `setImmediate` lets Node first read requests that have arrived: after a blocked turn, it runs timers before that.
    const timer = setTimeout(() => setImmediate(endIdle), gracePeriod)
    server.once("close", () => clearTimeout(timer))
    return server
  }
  return server
}
