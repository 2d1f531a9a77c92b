import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http"
import { createServer as createTlsServer } from "node:https"
import type { Duplex } from "node:stream"
import { Duration } from "effect"
import { ExpectationFailed, HeadersTooLarge, MethodNotAllowed, RequestTimeout } from "../api/HttpErrors.ts"
import { InvalidParams } from "../domain/Errors.ts"
import { RequestMeter } from "../port/RequestMeter.ts"
import type { Certificate } from "./Certificate.ts"
import { clientGone } from "./clientGone.ts"
import { closeGracefully } from "./closeGracefully.ts"
import { dropStalledReaders } from "./dropStalledReaders.ts"
import { routeOf } from "./KnownRoutes.ts"
import { noteRefusal, refusalStatusOf } from "./refusedRequests.ts"
import { requestIdOf } from "./requestIdOf.ts"
import type { ServerSettings } from "./ServerSettings.ts"

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

type Refusal = InvalidParams | MethodNotAllowed | RequestTimeout | ExpectationFailed | HeadersTooLarge

const badRequest = (message: string) => InvalidParams.of({ path: [], message })

const headersOf = (request_id: string, body: string) => ({
  "content-type": "application/json",
  "content-length": String(Buffer.byteLength(body)),
  "cache-control": "no-store",
  "x-request-id": request_id,
  connection: "close"
})

const givenId = ({ headers }: IncomingMessage) => {
  const given = headers["x-request-id"]
  return typeof given === "string" ? given : undefined
}

/** The responses that each connection still owes, in the order of the requests. */
const owed = new WeakMap<Duplex, Set<ServerResponse>>()

const refused = new WeakSet<Duplex>()

/** How long a client may take to read a refusal, in milliseconds. */
const lingerTimeout = 1_000

/** Of what never became a request there is no route, no duration and mostly no method. */
const meterRefusal = (meter: RequestMeter, method = "", status: number) => {
  meter.began()
  meter.ended({ method, route: "unmatched", status, seconds: 0 })
}

/**
 * Writes an envelope where Node offers no response, and closes the connection. Earlier requests that arrived in full
 * are answered first: a refusal in their place would deny what they did.
 */
const refuseSocket = (
  meter: RequestMeter,
  socket: Duplex,
  { error }: Refusal,
  { extra = {}, request }: { readonly extra?: Record<string, string>; readonly request?: IncomingMessage } = {}
) => {
  if (refused.has(socket) || !socket.writable) return
  refused.add(socket)
  const responses = Array.from(owed.get(socket) ?? [])
  const broken = request ?? responses.find(({ req }) => !req.complete)?.req
  const request_id = requestIdOf(broken && givenId(broken))
  if (request === undefined && broken !== undefined) noteRefusal(broken, error.code)
  else meterRefusal(meter, request?.method, error.code)
  const write = () => {
    if (!socket.writable) return
    const body = JSON.stringify({ error })
    const head = Object.entries({ ...headersOf(request_id, body), ...extra })
    const lines = head.map(([name, value]) => `${name}: ${value}\r\n`).join("")
    socket.end(`HTTP/1.1 ${error.code} ${STATUS_CODES[error.code]}\r\n${lines}\r\n${body}`)
    const end = setTimeout(() => socket.destroy(), lingerTimeout)
    socket.once("close", () => clearTimeout(end))
  }
  const last = responses.findLast(({ req }) => req.complete)
  if (last === undefined) write()
  else last.once("close", write)
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

const countOf = ({ rawHeaders }: IncomingMessage, header: string) => {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? ""
    if (name.length === header.length && name.toLowerCase() === header) count += 1
  }
  return count
}

/** What Node emits with a request and its response. */
const requestEvents = new Set(["request", "checkContinue", "checkExpectation"])

/**
 * Screens requests before any other listener. Those without exactly one Host header are refused (RFC 9112, 3.2), and
 * two Authorization headers count as none (D2).
 */
const screened = (server: Server, sendTimeout: number, meter: RequestMeter): Server => {
  const emit = server.emit.bind(server)
  const watch = dropStalledReaders(server, sendTimeout)
  server.emit = (event: string, ...args: Array<unknown>) => {
    if (!requestEvents.has(event)) return emit(event, ...args)
    const [request, response] = args as [IncomingMessage, ServerResponse]
    const responses = owed.get(request.socket) ?? new Set()
    owed.set(request.socket, responses.add(response))
    const began = performance.now()
    const { method = "", url = "" } = request
    meter.began()
    response.once("close", () => {
      responses.delete(response)
      const status = response.headersSent ? response.statusCode : (refusalStatusOf(request) ?? clientGone)
      meter.ended({
        method,
        route: routeOf(method, url) ?? "unmatched",
        status,
        seconds: (performance.now() - began) / 1000
      })
    })
    watch(response)
    const joined = request.headers.authorization?.includes(",") === true
    if (joined && countOf(request, "authorization") > 1) delete request.headers.authorization
    const hosts = countOf(request, "host")
    if (hosts === 1 || (hosts === 0 && request.httpVersion === "1.0")) return emit(event, ...args)
    refuseResponse(request, response, badRequest("must have exactly one Host header"))
    return true
  }
  return server
}

/** Refuses CONNECT. Node no longer handles the socket's timeouts or errors. */
const refuseTunnel = (meter: RequestMeter) => (request: IncomingMessage, socket: Duplex) => {
  socket.on("error", () => {}).resume()
  refuseSocket(meter, socket, new MethodNotAllowed(), { extra: { allow: "GET, HEAD, POST, PATCH, DELETE" }, request })
}

/** A Node server with limits on time, size and number, whose own refusals are envelopes too; HTTPS with a certificate. */
export const makeNodeServer = (
  { keepAliveTimeout, maxConnections, sendTimeout }: Omit<ServerSettings, "host" | "port" | "accessLog">,
  certificate?: Certificate,
  meter = RequestMeter.defaultValue()
): Server => {
  const options = { ...limits, keepAliveTimeout: Duration.toMillis(keepAliveTimeout) }
  const server: Server =
    certificate === undefined
      ? createServer(options)
      : createTlsServer({ ...options, ...certificate, minVersion: "TLSv1.2", handshakeTimeout: limits.headersTimeout })
  server.maxConnections = maxConnections
  server
    .on("clientError", (error: NodeJS.ErrnoException, socket) => refuseSocket(meter, socket, refusalOf(error.code)))
    .on("checkExpectation", (request, response) => refuseResponse(request, response, new ExpectationFailed()))
    .on("connect", refuseTunnel(meter))
  return screened(closeGracefully(server), Duration.toMillis(sendTimeout), meter)
}
