import type { Server, ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** Makes `close` wait for requests only: connections without one are closed, then and when their answer is written. */
export const closeWithoutWaiting = (server: Server): Server => {
  const idle = new Set<Socket>()
  let closing = false
  server.on("connection", (socket: Socket) => {
    idle.add(socket)
    socket.once("close", () => idle.delete(socket))
  })
  const begin = ({ socket }: { readonly socket: Socket }, response: ServerResponse) => {
    idle.delete(socket)
    response.once("close", () => {
      if (closing) socket.end()
      else if (!socket.destroyed) idle.add(socket)
    })
  }
  server.on("request", begin).on("checkContinue", begin)
  const close = server.close.bind(server)
  server.close = (callback) => {
    closing = true
    for (const socket of idle) socket.destroy()
    return close(callback)
  }
  return server
}
