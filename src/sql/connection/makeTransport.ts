import { connect as connectSocket, type Socket } from "node:net"
import { connect as connectTls, type TLSSocket } from "node:tls"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { NoticeTap } from "./NoticeTap.ts"
import { TlsNegotiation } from "./TlsNegotiation.ts"

/**
 * Destroys the connection if a statement is running and nothing has arrived for `silenceTimeout` milliseconds. Returns
 * a callback for when PostgreSQL is ready for the next statement.
 */
const watch = (socket: Socket | TLSSocket, silenceTimeout: number): (() => void) => {
  let writtenWhenReady = 0
  let read = 0
  let silentSince: number | undefined
  const check = () => {
    const now = performance.now()
    const busy = socket.bytesWritten > writtenWhenReady
    if (!busy || socket.bytesRead !== read) silentSince = undefined
    read = socket.bytesRead
    if (!busy) return
    silentSince ??= now
    if (now - silentSince >= silenceTimeout) socket.destroy(new Error("The database has gone silent"))
  }
  const timer = setInterval(check, silenceTimeout / 8).unref()
  socket.once("close", () => clearInterval(timer))
  return () => {
    writtenWhenReady = socket.bytesWritten
  }
}

/**
 * Opens connections that are destroyed once they go silent. `onUnreplicated` is called when a commit may not have
 * reached its synchronous replicas, which the driver does not report.
 */
export const makeTransport =
  (target: DatabaseTarget, silenceTimeout: number, onUnreplicated: () => void) => (): Socket | TLSSocket => {
    const { host, port, tls } = target
    const raw = host.startsWith("/")
      ? connectSocket({ path: `${host}/.s.PGSQL.${port}` })
      : connectSocket({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 })
    const socket = tls === undefined ? raw : connectTls({ ...tls, socket: new TlsNegotiation(raw) })
    const tap = new NoticeTap(onUnreplicated, watch(socket, silenceTimeout))
    socket.on("data", (chunk: Buffer) => tap.read(chunk))
    return socket
  }
