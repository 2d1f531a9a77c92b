import type { Server, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { TLSSocket } from "node:tls"

/** How often connections are checked, in milliseconds. */
const interval = 1_000

/** The kernel forgets what a client has not read only if the connection is reset, which Node cannot do through TLS. */
const abort = (socket: Socket) => {
  if (socket instanceof TLSSocket) socket.destroy()
  else socket.resetAndDestroy()
}

/**
 * Returns a function that watches a response: its connection is ended if, `timeout` milliseconds after the response was
 * complete, the client has not read it and all before it.
 */
export const dropStalledReaders = (server: Server, timeout: number) => {
  /** When each response was first seen complete. */
  const unread = new Map<ServerResponse, number | undefined>()
  const check = () => {
    const now = performance.now()
    for (const [response, since] of unread) {
      if (since === undefined && response.writableEnded) unread.set(response, now)
      if (since !== undefined && now - since >= timeout) abort(response.req.socket)
    }
  }
  const timer = setInterval(check, Math.min(interval, timeout)).unref()
  server.once("close", () => clearInterval(timer))
  return (response: ServerResponse) => {
    unread.set(response, undefined)
    response.once("close", () => unread.delete(response))
  }
}
