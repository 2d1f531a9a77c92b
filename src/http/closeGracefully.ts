import type { Server, ServerResponse } from "node:http"
import { Server as NetServer, type Socket } from "node:net"

/** How long a connection without a request may still send one, in milliseconds. */
const grace = 1_000

/**
 * Makes `close` stop listening at once, answer every request that still arrives, with `Connection: close`, and end the
 * connections that stay silent.
 */
export const closeGracefully = (server: Server): Server => {
  const silent = new Set<Socket>()
  const underWay = new Set<ServerResponse>()
  let closing = false
  server.on("connection", (socket: Socket) => {
    silent.add(socket)
    socket.once("close", () => silent.delete(socket))
  })
  const begin = ({ socket }: { readonly socket: Socket }, response: ServerResponse) => {
    silent.delete(socket)
    underWay.add(response)
    if (closing) response.shouldKeepAlive = false
    response.once("close", () => {
      underWay.delete(response)
      // What a client sends after its last answer must not be acted upon: nobody could tell it the outcome.
      if (closing) socket.destroySoon()
      else if (!socket.destroyed) silent.add(socket)
    })
  }
  server.on("request", begin).on("checkContinue", begin)
  server.close = (callback) => {
    closing = true
    for (const response of underWay) response.shouldKeepAlive = false
    NetServer.prototype.close.call(server, callback)
    const end = setTimeout(() => {
      for (const socket of silent) socket.destroy()
    }, grace)
    server.once("close", () => clearTimeout(end))
    return server
  }
  return server
}
