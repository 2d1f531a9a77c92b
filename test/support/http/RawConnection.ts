import { connect, type Socket } from "node:net"
import { connect as connectTls } from "node:tls"
import { Effect } from "effect"

/** One HTTP answer as received. Header names are in lower case, values of repeated headers joined by a comma. */
export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** All parts of an answer that could contain a secret, as one text. */
export const answerText = ({ body, headers }: Answer) =>
  [...Object.entries(headers).map(([name, value]) => `${name}: ${value}`), body].join("\n")

/** A connection on which a test writes any bytes and reads answers one by one. */
export interface RawConnection {
  readonly write: (bytes: string | Uint8Array) => Effect.Effect<void>
  /** The next complete answer. Dies when the connection closes before there is one. */
  readonly answer: Effect.Effect<Answer>
  /** The next answer, to a request whose answer has no body. */
  readonly head: Effect.Effect<Answer>
  /** Everything received and not yet read as an answer, once the service has closed the connection. */
  readonly closed: Effect.Effect<string>
}

const parseHead = (text: string): Omit<Answer, "body"> => {
  const [statusLine = "", ...lines] = text.split("\r\n")
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const colon = line.indexOf(":")
    const name = line.slice(0, colon).toLowerCase()
    const value = line.slice(colon + 1).trim()
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`
  }
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]
  if (status === undefined) throw new Error("not an HTTP answer")
  return { status: Number(status), headers }
}

const readChunks = (bytes: Buffer): { readonly body: Buffer; readonly length: number } | undefined => {
  const parts: Array<Buffer> = []
  for (let at = 0; ;) {
    const end = bytes.indexOf("\r\n", at)
    if (end < 0) return undefined
    const size = Number.parseInt(bytes.toString("latin1", at, end), 16)
    const next = end + 2 + size + 2
    if (bytes.length < next) return undefined
    if (size === 0) return { body: Buffer.concat(parts), length: next }
    parts.push(bytes.subarray(end + 2, end + 2 + size))
    at = next
  }
}

const readBody = (bytes: Buffer, headers: Answer["headers"], bodiless: boolean) => {
  if (bodiless) return { body: Buffer.alloc(0), length: 0 }
  if (headers["transfer-encoding"] === "chunked") return readChunks(bytes)
  const length = Number(headers["content-length"] ?? 0)
  return bytes.length < length ? undefined : { body: bytes.subarray(0, length), length }
}

const readAnswer = (bytes: Buffer, bodiless: boolean) => {
  const end = bytes.indexOf("\r\n\r\n")
  if (end < 0) return undefined
  const head = parseHead(bytes.toString("latin1", 0, end))
  const found = readBody(bytes.subarray(end + 4), head.headers, bodiless || head.status < 200)
  return found && { answer: { ...head, body: found.body.toString("utf8") }, length: end + 4 + found.length }
}

const over = (socket: Socket): RawConnection => {
  let received = Buffer.alloc(0)
  let over = false
  let changed = () => {}
  socket.on("data", (chunk: Buffer) => {
    received = Buffer.concat([received, chunk])
    changed()
  })
  socket.on("close", () => {
    over = true
    changed()
  })
  // The service may close while a test still writes.
  socket.on("error", () => {})

  const until = <A>(look: () => A | undefined) =>
    Effect.callback<A>((resume) => {
      changed = () => {
        const found = look()
        if (found !== undefined) return resume(Effect.succeed(found))
        if (over) resume(Effect.die(new Error("the connection closed without an answer")))
      }
      changed()
    })
  const next = (bodiless: boolean) =>
    until(() => {
      const found = readAnswer(received, bodiless)
      if (found === undefined) return undefined
      received = received.subarray(found.length)
      return found.answer
    })
  return {
    write: (bytes) => Effect.sync(() => void socket.write(bytes)),
    answer: next(false),
    head: next(true),
    closed: until(() => (over ? received.toString("utf8") : undefined))
  }
}

const connected = (url: string, allowHalfOpen = false) =>
  Effect.acquireRelease(
    Effect.callback<Socket>((resume) => {
      const { hostname, port, protocol } = new URL(url, "unix:///")
      const to = { host: hostname, port: Number(port), allowHalfOpen }
      const socket =
        protocol === "unix:"
          ? connect({ path: url, allowHalfOpen })
          : protocol === "https:"
            ? connectTls({ ...to, rejectUnauthorized: false })
            : connect(to)
      socket.setNoDelay(true)
      socket.once(protocol === "https:" ? "secureConnect" : "connect", () => resume(Effect.succeed(socket)))
      socket.once("error", (error) => resume(Effect.die(error)))
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

/** Connects to the URL of a service or the path of its socket; the scope's end closes the connection, whatever state it is in. */
export const open = (url: string) => Effect.map(connected(url), over)

/** Connects to the URL of a service or the path of its socket, and reads nothing. */
export const deafClient = (url: string) => Effect.map(connected(url), (socket) => socket.pause())

/** Connects as `deafClient` does, and stays able to read when it has ended its own side. */
export const halfOpenClient = (url: string) => Effect.map(connected(url, true), (socket) => socket.pause())
