import { IncomingMessage } from "node:http"

/** How many bytes all bodies may take that no other budget has admitted. */
const unreadLimit = 12 * 1024 * 1024

/** How many bytes of a body to discard after its answer. */
const discardLimit = 256 * 1024

const unread = new Set<ArrivingRequest>()
let unreadTotal = 0

/** The size of all bodies that have arrived and that no other budget has admitted. */
export const unreadBytes = () => unreadTotal

/** After how many chunks of a body a connection waits for its turn: a chunk of one byte costs as much as a long one. */
const chunksPerTurn = 1024

/** The requests that wait for it. Each turn of the event loop reads on one of them, so that many of them delay nobody for long. */
const waiting: Array<ArrivingRequest> = []

const takeTurn = () => {
  waiting.shift()?.readOn()
  if (waiting.length > 0) setImmediate(takeTurn)
}

const noop = () => {}

/**
 * A request that collects its body in one buffer, without a stream's object per chunk. Invariants: before `readAll`, it reads
 * no more of the body than arrived in one chunk with the head; and all bodies that no other budget has admitted take at most
 * 12 MiB together, or the largest is dropped. After `readAll`, it reads even while the body waits for memory, to notice a client
 * that leaves.
 */
export class ArrivingRequest extends IncomingMessage {
  /** How many bytes of the body have arrived. */
  received = 0
  /** The body was dropped for lack of memory. */
  isDropped = false
  /** The status of the refusal, if the rest of the request could not be read. */
  refusedWith: number | undefined
  private bytes: Buffer | undefined
  /** How many bytes of it no other budget has admitted. */
  private unread = 0
  private onProgress = noop
  private state: "unread" | "reading" | "discarding" = "unread"
  private onExcess = noop
  private chunks = 0
  private isWaiting = false

  /** Whether the client waits for 100 Continue before it sends the body. */
  get expectsContinue(): boolean {
    const { complete, headers, httpVersion, received } = this
    return headers.expect !== undefined && httpVersion === "1.1" && !complete && received === 0
  }

  override push(part: Buffer | null): boolean {
    if (part === null) {
      const isOpen = super.push(null)
      this.onProgress()
      return isOpen
    }
    if (this.state === "discarding") {
      this.discardPart(part)
      return this.isInTurn()
    }
    this.received += part.length
    if (!this.isDropped) this.count(part.length)
    if (unreadTotal > unreadLimit) ArrivingRequest.dropLargest()
    if (this.isDropped) part.fill(0)
    else this.keep(part)
    this.onProgress()
    if (this.received === Number(this.headers["content-length"])) return true
    return (this.state === "reading" || this.isDropped) && this.isInTurn()
  }

  /** Reads on when its turn has come. */
  readOn(): void {
    this.isWaiting = false
    if (!this.complete) this._read(0)
  }

  /** Reads the rest of the body. Calls `onProgress` at once and for every chunk, until the request is answered. */
  readAll(onProgress: () => void): void {
    this.onProgress = onProgress
    this.state = "reading"
    onProgress()
    if (!this.complete) this._read(0)
  }

  /** Gives back this body's share of the unread budget, because another budget has admitted the body. */
  leaveUnreadBudget(): void {
    this.count(-this.unread)
  }

  /** Returns the whole body; the caller must wipe it. */
  takeBody(): Buffer {
    const body = this.bytes?.subarray(0, this.received) ?? Buffer.alloc(0)
    this.bytes = undefined
    this.leaveUnreadBudget()
    this.resume()
    return body
  }

  /** Wipes the body and discards the rest of it. Calls `onExcess` once if the rest is larger than `discardLimit`. */
  discard(onExcess: () => void): void {
    this.wipe()
    this.received = 0
    this.state = "discarding"
    this.onExcess = onExcess
    this.resume()
  }

  /** Wipes the body and gives its memory back. */
  wipe(): void {
    this.onProgress = noop
    this.bytes?.fill(0)
    this.bytes = undefined
    this.leaveUnreadBudget()
  }

  private isInTurn(): boolean {
    if (this.isWaiting) return false
    this.chunks += 1
    if (this.chunks % chunksPerTurn !== 0) return true
    this.isWaiting = true
    if (waiting.push(this) === 1) setImmediate(takeTurn)
    return false
  }

  private discardPart(part: Buffer): void {
    this.received += part.length
    part.fill(0)
    if (this.received <= discardLimit) return
    this.onExcess()
    this.onExcess = noop
  }

  private count(bytes: number): void {
    this.unread += bytes
    unreadTotal += bytes
    if (this.unread > 0) unread.add(this)
    else unread.delete(this)
  }

  /** Drops the largest body, of several the last. It is at least as large as the chunk that has just arrived. */
  private static dropLargest(): void {
    const largest = Array.from(unread).reduce((one, other) => (other.unread >= one.unread ? other : one))
    largest.isDropped = true
    largest.bytes?.fill(0)
    largest.bytes = undefined
    largest.leaveUnreadBudget()
  }

  private keep(part: Buffer): void {
    const { bytes, received } = this
    if (bytes === undefined) {
      this.bytes = part
      return
    }
    const before = received - part.length
    if (received > bytes.length) {
      this.bytes = Buffer.alloc(Math.max(received, 2 * bytes.length))
      bytes.copy(this.bytes, 0, 0, before)
      bytes.fill(0)
    }
    part.copy(this.bytes ?? bytes, before)
    part.fill(0)
  }
}
