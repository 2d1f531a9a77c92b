import type { Server, ServerResponse } from "node:http"
import { Server as NetServer, type Socket } from "node:net"
import { Server as TlsServer } from "node:tls"

/** How long an idle connection may still send a request, in milliseconds. */
const gracePeriod = 1_000

/**
 * Makes `close` stop listening at once, answer requests that still arrive with `Connection: close`, and end connections
 * that stay idle. Node's own `close` would keep a fresh connection open. `pending` are the responses that are not closed.
 */
export const closeGracefully = (server: Server, pending: ReadonlySet<ServerResponse>): Server => {
  const connections = new Set<Socket>()
  let closing = false
  /** Nothing that a client sends after the last response may take effect: the client could not learn the outcome. */
  const makeLast = (response: ServerResponse) => {
    response.shouldKeepAlive = false
    response.once("close", () => response.req.socket.destroySoon())
  }
  server.on(server instanceof TlsServer ? "secureConnection" : "connection", (socket: Socket) => {
    connections.add(socket)
    socket.once("close", () => connections.delete(socket))
  })
  for (const event of ["request", "checkContinue"]) {
    server.on(event, (_request, response: ServerResponse) => {
      if (closing) makeLast(response)
    })
  }
  server.close = (callback) => {
    closing = true
    pending.forEach(makeLast)
    NetServer.prototype.close.call(server, callback)
    const end = setTimeout(() => {
      const active = new Set(Array.from(pending, ({ req }) => req.socket))
      for (const socket of connections) if (!active.has(socket)) socket.destroy()
    }, gracePeriod)
    server.once("close", () => clearTimeout(end))
    return server
  }
  return server
}
