import { IncomingMessage } from "node:http"
import { type Holding, makeMemoryBudget } from "../port/MemoryBudget.ts"

/** Of so many bytes, bodies that nobody has asked for yet take three quarters at most: they came along with their heads. */
const mostUnread = 16 * 1024 * 1024

/** How many bytes of a body are discarded behind its answer. */
const mostDiscarded = 256 * 1024

let arrived = 0

/** Every body is an account of its own: where too much is unread, the largest one is lost. */
const unread = makeMemoryBudget(mostUnread)

const nobody = () => {}

/**
 * A request whose body arrives in one buffer, as a stream would keep an object for each of its parts. Invariant: of a body
 * nothing more is read than `onArrival` has taken on account, except for the rest of the piece in which its head came and, while
 * it waits, for one piece more; and all bodies together hold at most 12 MiB of that.
 */
export class ArrivingRequest extends IncomingMessage {
  /** How much of the body has arrived. */
  received = 0
  /** The body was too much to be kept until somebody asked for it. */
  isLost = false
  private bytes: Buffer | undefined
  private holding: Holding | undefined
  private changed = nobody
  private state: "unread" | "reading" | "waiting" | "discarding" = "unread"
  private exceeded = nobody

  /** Whether the client sends no body before it is told to. */
  get expectsContinue(): boolean {
    const { complete, headers, httpVersion, received } = this
    return headers.expect !== undefined && httpVersion === "1.1" && !complete && received === 0
  }

  override push(part: Buffer | null): boolean {
    if (part === null) {
      const isOpen = super.push(null)
      this.changed()
      return isOpen
    }
    if (this.state === "discarding") return this.discardPart(part)
    const wasWaiting = this.state === "waiting"
    this.received += part.length
    if (!this.isLost) this.keep(part)
    this.changed()
    if (this.state === "unread") return this.isLost || this.received === Number(this.headers["content-length"])
    return !(wasWaiting && this.state === "waiting")
  }

  /** Calls a function whenever something has arrived, until the request is answered. */
  onArrival(changed: () => void): void {
    this.changed = changed
  }

  /** Reads on; if it waits, only until something more arrives, so that a client that leaves is noticed. */
  readOn(state: "reading" | "waiting"): void {
    const isOnItsWay = this.state === "reading"
    this.state = state
    if (state === "waiting") return
    this.holding?.shrink(0)
    if (!isOnItsWay) this._read(0)
  }

  /** The whole body, which whoever takes it wipes. */
  takeBody(): Buffer {
    const body = this.bytes?.subarray(0, this.received) ?? Buffer.alloc(0)
    this.bytes = undefined
    this.holding?.release()
    this.resume()
    return body
  }

  /** Forgets what has arrived, and discards the rest of the body; more than a little of that is told. */
  discard(exceeded: () => void): void {
    this.forget()
    this.received = 0
    this.state = "discarding"
    this.exceeded = exceeded
    this.resume()
  }

  /** Wipes and gives back what has arrived. */
  forget(): void {
    this.changed = nobody
    this.bytes?.fill(0)
    this.bytes = undefined
    this.holding?.release()
  }

  private discardPart(part: Buffer): true {
    this.received += part.length
    if (this.received > mostDiscarded) {
      this.exceeded()
      this.exceeded = nobody
    }
    return true
  }

  private lose(): void {
    this.isLost = true
    this.bytes?.fill(0)
    this.bytes = undefined
    this.holding?.release()
  }

  private keep(part: Buffer): void {
    this.holding ??= unread.hold(String((arrived += 1)), "body", () => this.lose())
    let isAdmitted = false
    if (!this.holding.grow(part.length, () => (isAdmitted = true)) && !isAdmitted) this.lose()
    if (this.isLost) return void part.fill(0)
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
