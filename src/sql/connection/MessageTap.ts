/** The types of the messages that are read; the others are skipped. */
const notice = 0x4e // N
const error = 0x45 // E
const parameterStatus = 0x53 // S
const readyForQuery = 0x5a // Z

/** Members of notices and errors: C is the SQLSTATE, F the server's source file. */
const unreplicated = "C01000\0"
const readOnly = "C25006\0"
/** Marks Citus's warning that it reached no node. Ignored: a statement that needs the node fails anyway. */
const unreached = "Fremote_commands.c\0"
const standby = "in_hot_standby\0on\0"

/** Events that the driver does not report. */
interface Events {
  /** SQLSTATE 01000: a commit gave up waiting for a synchronous replica and may exist on this server only. */
  readonly onUnreplicated: () => void
  /** The server refused a write (25006). */
  readonly onReadOnly: () => void
  /** The server is a standby. A pooler repeats the state at its first connection. */
  readonly onStandby: () => void
  readonly onReady: () => void
}

/** Reads the server's messages along with the driver. */
export class MessageTap {
  readonly #events: Events
  /** How many bytes of the current message to skip. */
  #skip = 0
  #ready = false
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
      const isRead = type === notice || type === error || type === parameterStatus || type === readyForQuery
      if (rest.length < 5 || (isRead && rest.length < length)) {
        this.#partial = rest
        return
      }
      if (isRead) this.#report(type, rest.subarray(5, length))
      this.#skip = length
    }
  }

  #report(type: number, body: Buffer): void {
    switch (type) {
      case readyForQuery:
        this.#ready = true
        return this.#events.onReady()
      case notice:
        if (this.#ready && body.includes(unreplicated) && !body.includes(unreached)) this.#events.onUnreplicated()
        return
      case error:
        if (body.includes(readOnly, 0, "latin1")) this.#events.onReadOnly()
        return
      case parameterStatus:
        if (body.toString("latin1") === standby) this.#events.onStandby()
    }
  }
}
