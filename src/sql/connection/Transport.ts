import { connect as connectSocket, type Socket } from "node:net"
import { connect as connectTls, type TLSSocket } from "node:tls"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { NoticeTap } from "./NoticeTap.ts"
import { TlsNegotiation } from "./TlsNegotiation.ts"

/**
 * Destroys a connection on which a statement is under way and nothing has come back for `silence` milliseconds. Answers
 * with what to call when PostgreSQL is ready for the next one.
 */
const watch = (socket: Socket | TLSSocket, silence: number): (() => void) => {
  let writtenWhenReady = 0
  let read = 0
  let silentSince: number | undefined
  const look = () => {
    const now = performance.now()
    const underWay = socket.bytesWritten > writtenWhenReady
    if (!underWay || socket.bytesRead !== read) silentSince = undefined
    read = socket.bytesRead
    if (!underWay) return
    silentSince ??= now
    if (now - silentSince >= silence) socket.destroy(new Error("The database has gone silent"))
  }
  const timer = setInterval(look, silence / 8).unref()
  socket.once("close", () => clearInterval(timer))
  return () => {
    writtenWhenReady = socket.bytesWritten
  }
}

/**
 * Opens connections that heal: a dead one is noticed and destroyed. `onUnreplicated` is called when a commit may not
 * have reached the replicas it had to wait for, which the driver does not tell.
 */
export const makeTransport =
  (target: DatabaseTarget, silence: number, onUnreplicated: () => void) => (): Socket | TLSSocket => {
    const { host, port, tls } = target
    const raw = host.startsWith("/")
      ? connectSocket({ path: `${host}/.s.PGSQL.${port}` })
      : connectSocket({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 })
    const socket = tls === undefined ? raw : connectTls({ ...tls, socket: new TlsNegotiation(raw) })
    const tap = new NoticeTap(onUnreplicated, watch(socket, silence))
    socket.on("data", (chunk: Buffer) => tap.read(chunk))
    return socket
  }
