/** The types of the messages to inspect; the others are skipped. */
const notice = 0x4e // N
const error = 0x45 // E
const parameterStatus = 0x53 // S
const readyForQuery = 0x5a // Z

/** Fields of notices and errors: C is the SQLSTATE, F the server's source file. */
const unreplicated = "C01000\0"
const readOnly = "C25006\0"
/** Marks a notice 01000 of Citus that it reached no node, not reported: a statement that needs the node fails anyway. */
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
