import { connect as connectSocket, type Socket } from "node:net"
import { type Duplex, duplexPair } from "node:stream"
import { connect as connectTls, type TLSSocket } from "node:tls"
import type { DatabaseTarget } from "./DatabaseTarget.ts"

/** The types of the messages to inspect; the others are skipped. */
const notice = 0x4e // N
const error = 0x45 // E
const parameterStatus = 0x53 // S
const readyForQuery = 0x5a // Z

/** Fields of notices and errors: C is the SQLSTATE, F the server's source file. */
const unreplicated = "C01000\0"
const readOnly = "C25006\0"
/** Source file of Citus's notice 01000 about an unreachable node. Ignored: a statement that needs the node fails. */
const citusUnreached = "Fremote_commands.c\0"
/** The name and value of a parameter status. */
const standby = "in_hot_standby\0on\0"

/** Events that the driver does not report. */
interface Events {
  /** SQLSTATE 01000: a commit gave up waiting for a synchronous replica and may exist on this server only. */
  readonly onUnreplicated: () => void
  /** The server refused a write (25006). */
  readonly onReadOnly: () => void
  /** The server is a standby. A pooler reports what its first connection to the server found, which may be outdated. */
  readonly onStandby: () => void
  /** The server awaits the next statement. */
  readonly onReady: () => void
}

/** Reads the bytes that the driver also gets from the server, and reports the `Events`. */
export class MessageTap {
  readonly #events: Events
  /** How many bytes of the current message to skip. */
  #skip = 0
  /** Whether the connection is set up. Earlier notices belong to no statement. */
  #isReady = false
  /** The start of an incomplete message. */
  #partial: Buffer = Buffer.alloc(0)

  constructor(events: Events) {
    this.#events = events
  }

  read(chunk: Buffer): void {
    let rest = this.#partial.length === 0 ? chunk : Buffer.concat([this.#partial, chunk])
    this.#partial = Buffer.alloc(0)
    while (rest.length > 0) {
      if (this.#skip > 0) {
        const skipped = Math.min(this.#skip, rest.length)
        this.#skip -= skipped
        rest = rest.subarray(skipped)
        continue
      }
      const type = rest[0]
      /** Length of the whole message: a byte for the type, and the length that the server announces. */
      const length = rest.length < 5 ? Number.POSITIVE_INFINITY : 1 + rest.readUInt32BE(1)
      const isInspected = type === notice || type === error || type === parameterStatus || type === readyForQuery
      if (rest.length < 5 || (isInspected && rest.length < length)) {
        this.#partial = rest
        return
      }
      if (isInspected) this.#report(type, rest.subarray(5, length))
      this.#skip = length
    }
  }

  #report(type: number, body: Buffer): void {
    switch (type) {
      case readyForQuery:
        this.#isReady = true
        return this.#events.onReady()
      case notice:
        if (this.#isReady && body.includes(unreplicated) && !body.includes(citusUnreached))
          this.#events.onUnreplicated()
        return
      case error:
        if (body.includes(readOnly, 0, "latin1")) this.#events.onReadOnly()
        return
      case parameterStatus:
        if (body.toString("latin1") === standby) this.#events.onStandby()
    }
  }
}

/** When to destroy a connection. */
interface Lifetime {
  /** How many milliseconds a running statement may receive nothing. */
  readonly silence: number
  /** Whether the server is a pooler. Its report of a standby is ignored, because it may be outdated. */
  readonly pooler: boolean
}

/**
 * Destroys a connection that falls silent while a statement runs. Call the returned function whenever PostgreSQL is
 * ready for the next statement.
 */
const watch = (socket: Socket | TLSSocket, { silence }: Lifetime) => {
  let bytesWrittenWhenReady = 0
  let lastBytesRead = 0
  let silentSince: number | undefined
  const check = () => {
    const now = performance.now()
    const isRunning = socket.bytesWritten > bytesWrittenWhenReady
    if (!isRunning || socket.bytesRead !== lastBytesRead) silentSince = undefined
    lastBytesRead = socket.bytesRead
    if (!isRunning) return
    silentSince ??= now
    if (now - silentSince >= silence) socket.destroy(new Error("The database has gone silent"))
  }
  const timer = setInterval(check, silence / 8).unref()
  socket.once("close", () => clearInterval(timer))
  return () => {
    bytesWrittenWhenReady = socket.bytesWritten
  }
}

/** The message that asks PostgreSQL for TLS, and the answer with which it agrees. */
const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
const accepted = 0x53 // S

/** Returns a stream that sends nothing before PostgreSQL has agreed to TLS. */
const negotiateTls = (raw: Socket): Duplex => {
  /** What the TLS client writes to `stream`, `serverSide` reads, and vice versa. */
  const [stream, serverSide] = duplexPair()
  const closed = () => stream.destroy(Object.assign(new Error("Connection closed"), { code: "ECONNRESET" }))
  raw.once("error", (error) => stream.destroy(error)).once("close", closed)
  stream.once("close", () => raw.destroy())
  raw.write(sslRequest)
  raw.once("data", (answer: Buffer) => {
    // Anything after the first byte could be plaintext injected ahead of the handshake.
    if (answer[0] !== accepted || answer.length > 1) stream.destroy(new Error("The database does not speak TLS"))
    else raw.pipe(serverSide).pipe(raw)
  })
  return stream
}

/**
 * Makes a function that opens a connection. Destroys connections that fall silent or lead to a read-only server; the
 * pool opens new ones. Calls `onUnreplicated` when a commit may not have reached its synchronous replicas, which the
 * driver does not report.
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
