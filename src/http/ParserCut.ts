import { createServer, type IncomingMessage } from "node:http"
import { Duplex } from "node:stream"
/** Two fields of Node's parser, called with each head of a request and, `HTTPParser.kOnBody`, each chunk of a body. */
interface Parser {
  onIncoming: (request: IncomingMessage & { upgrade: boolean }, keepAlive: boolean) => number
  3: ((this: Parser, chunk: Buffer) => void) | undefined
}
export const maxChunks = 256
const parserOf = (socket: Duplex) => (socket as Duplex & { readonly parser?: Parser }).parser

/** Whether the parser of this Node has both fields. */
export const canCut = (socket = new Duplex({ read: () => {} })): boolean => {
  const parser = createServer().emit("connection", socket) ? parserOf(socket) : undefined
  return parser?.onIncoming !== undefined && parser[3]?.name === "parserOnBody"
}

/**
 * Parses no request that `admits` refuses, and no body in more than `maxChunks`. Without this cut, Node parses a whole read,
 * thousands of requests or chunks, before anything else runs; it has no public way to stop.
 */
export const cutParsing = (socket: Duplex, admits: (request: IncomingMessage) => boolean, onManyChunks: () => void) => {
  const parser = parserOf(socket) as Parser
  const { 3: onBody, onIncoming } = parser
  parser.onIncoming = (request, keepAlive) => {
    // 2 stops. An upgrade or CONNECT would take the socket from HTTP.
    if (!admits(request)) return ((request.upgrade = false), 2)
    let chunks = 0
    const countChunk: typeof onBody = (chunk) => {
      if ((chunks += 1) <= maxChunks) return onBody?.call(parser, chunk)
      parser[3] = undefined
      request.push = () => true // Keeps out the end, at which the body would look complete.
      onManyChunks()
    }
    const isChunked = request.headers["transfer-encoding"] !== undefined && request.method !== "CONNECT"
    parser[3] = isChunked ? countChunk : onBody
    return onIncoming(request, keepAlive)
  }
  // Before Node frees the parser for another connection.
  socket.prependOnceListener("close", () => parserOf(socket) === parser && (parser[3] = onBody))
}
