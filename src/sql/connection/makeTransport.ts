import { connect as connectSocket, type Socket } from "node:net"
import { connect as connectTls, type TLSSocket } from "node:tls"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { MessageTap } from "./MessageTap.ts"
import { TlsNegotiation } from "./TlsNegotiation.ts"

/** When a connection is destroyed; times in milliseconds. */
interface Lifetime {
  /** A statement runs and nothing has arrived for this long. */
  readonly silence: number
  /** Its age, give or take a tenth, once no statement or transaction is open: load moves on after a failover. */
  readonly maxAge: number
  /** A pooler's word that the server is a standby may be out of date; a refused write is not. */
  readonly pooler: boolean
}

/** Destroys a silent or old connection. Returns a callback for when PostgreSQL is ready for the next statement. */
const watch = (socket: Socket | TLSSocket, { maxAge, silence }: Lifetime) => {
  const expires = performance.now() + maxAge * (0.9 + 0.2 * Math.random())
  let writtenWhenReady = 0
  let read = 0
  let silentSince: number | undefined
  let transaction = true
  const check = () => {
    const now = performance.now()
    const busy = socket.bytesWritten > writtenWhenReady
    if (!busy || socket.bytesRead !== read) silentSince = undefined
    read = socket.bytesRead
    if (!busy) {
      if (!transaction && now >= expires) socket.destroy()
      return
    }
    silentSince ??= now
    if (now - silentSince >= silence) socket.destroy(new Error("The database has gone silent"))
  }
  const timer = setInterval(check, Math.min(silence / 8, maxAge)).unref()
  socket.once("close", () => clearInterval(timer))
  return (inTransaction: boolean) => {
    writtenWhenReady = socket.bytesWritten
    transaction = inTransaction
  }
}

/**
 * Opens connections that are destroyed once they are silent, old or lead to a read-only server; the pool opens new ones.
 * `onUnreplicated` is called when a commit may not have reached its synchronous replicas, which the driver does not
 * report.
 */
export const makeTransport =
  (target: DatabaseTarget, lifetime: Lifetime, onUnreplicated: () => void) => (): Socket | TLSSocket => {
    const { host, port, tls } = target
    const raw = host.startsWith("/")
      ? connectSocket({ path: `${host}/.s.PGSQL.${port}` })
      : connectSocket({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 })
    const socket = tls === undefined ? raw : connectTls({ ...tls, socket: new TlsNegotiation(raw) })
    const tap = new MessageTap({
      onUnreplicated,
      onReadOnly: () => socket.destroy(),
      onStandby: () => {
        if (!lifetime.pooler) socket.destroy()
      },
      onReady: watch(socket, lifetime)
    })
    socket.on("data", (chunk: Buffer) => tap.read(chunk))
    return socket
  }
