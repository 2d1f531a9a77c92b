import { connect as connectSocket, type Socket } from "node:net"
import { type Duplex, duplexPair } from "node:stream"
import { connect as connectTls, type TLSSocket } from "node:tls"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { MessageTap } from "./MessageTap.ts"

/** When to destroy a connection. */
interface Lifetime {
  /** How many milliseconds a running statement may receive nothing. */
  readonly silence: number
  /** Whether the server is a pooler, whose report of being a standby may be outdated, and is ignored. */
  readonly pooler: boolean
}

/** Destroys a connection that falls silent. Call the result when PostgreSQL is ready for the next statement. */
const watch = (socket: Socket | TLSSocket, { silence }: Lifetime) => {
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
    if (now - silentSince >= silence) socket.destroy(new Error("The database has gone silent"))
  }
  const timer = setInterval(check, silence / 8).unref()
  socket.once("close", () => clearInterval(timer))
  return () => {
    writtenWhenReady = socket.bytesWritten
  }
}

const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
const accepted = 0x53 // S

/** Returns a stream that sends nothing before PostgreSQL has agreed to TLS. */
const negotiateTls = (raw: Socket): Duplex => {
  const [stream, behind] = duplexPair()
  const closed = () => stream.destroy(Object.assign(new Error("Connection closed"), { code: "ECONNRESET" }))
  raw.once("error", (error) => stream.destroy(error)).once("close", closed)
  stream.once("close", () => raw.destroy())
  raw.write(sslRequest)
  raw.once("data", (answer: Buffer) => {
    // Anything after the first byte could be plaintext injected ahead of the handshake.
    if (answer[0] !== accepted || answer.length > 1) stream.destroy(new Error("The database does not speak TLS"))
    else raw.pipe(behind).pipe(raw)
  })
  return stream
}

/**
 * Opens connections, and destroys those that fall silent or lead to a read-only server; the pool opens new ones. Calls
 * `onUnreplicated` when a commit may not have reached its synchronous replicas, which the driver does not report.
 */
export const makeTransport =
  (target: DatabaseTarget, lifetime: Lifetime, onUnreplicated: () => void) => (): Socket | TLSSocket => {
    const { host, port, tls } = target
    const raw = host.startsWith("/")
      ? connectSocket({ path: `${host}/.s.PGSQL.${port}` })
      : connectSocket({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 })
    const socket = tls === undefined ? raw : connectTls({ ...tls, socket: negotiateTls(raw) })
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
