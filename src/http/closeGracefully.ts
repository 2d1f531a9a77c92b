import type { Server, ServerResponse } from "node:http"
import { Server as NetServer, type Socket } from "node:net"
import { Server as TlsServer } from "node:tls"

/** How long an idle connection may still send a request, in milliseconds. */
const gracePeriod = 1_000

/**
 * Makes `close` stop listening at once, answer requests that still arrive with `Connection: close`, and end connections
 * that stay idle.
 */
export const closeGracefully = (server: Server): Server => {
  const idle = new Set<Socket>()
  const pending = new Set<ServerResponse>()
  let closing = false
  server.on(server instanceof TlsServer ? "secureConnection" : "connection", (socket: Socket) => {
    idle.add(socket)
    socket.once("close", () => idle.delete(socket))
  })
  const begin = ({ socket }: { readonly socket: Socket }, response: ServerResponse) => {
    idle.delete(socket)
    pending.add(response)
    if (closing) response.shouldKeepAlive = false
    response.once("close", () => {
      pending.delete(response)
      // Nothing sent after the last response may take effect: the client could not learn the outcome.
      if (closing) socket.destroySoon()
      else if (!socket.destroyed) idle.add(socket)
    })
  }
  server.on("request", begin).on("checkContinue", begin)
  server.close = (callback) => {
    closing = true
    for (const response of pending) response.shouldKeepAlive = false
    NetServer.prototype.close.call(server, callback)
    const end = setTimeout(() => {
      for (const socket of idle) socket.destroy()
    }, gracePeriod)
    server.once("close", () => clearTimeout(end))
    return server
  }
  return server
}
