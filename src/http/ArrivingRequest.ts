import { IncomingMessage } from "node:http"
import { type Holding, makeMemoryBudget } from "../runtime/MemoryBudget.ts"

/** Of so many bytes, bodies that nobody has asked for yet take three quarters at most: they came along with their heads. */
const mostUnread = 16 * 1024 * 1024

/** How many bytes of a body are discarded behind its answer. */
const mostDiscarded = 256 * 1024

let arrived = 0

/** Every body is an account of its own: where too much is unread, the largest one is lost. */
const unread = makeMemoryBudget(mostUnread)

/** How many bytes of bodies have arrived that nobody has taken on account yet. */
export const unreadBytes = () => unread.held.body

const nobody = () => {}

/**
 * A request whose body arrives in one buffer, as a stream would keep an object for each of its parts. Invariant: until somebody
 * asks for a body, no more of it is read than came in one piece with its head; and what nobody has taken on account yet of all
 * bodies together is at most 12 MiB, of which the largest is lost. A body that was asked for is read even while it waits for
 * memory, as a client that leaves would not be noticed otherwise.
 */
export class ArrivingRequest extends IncomingMessage {
  /** How much of the body has arrived. */
  received = 0
  /** The body was too much to be kept until somebody asked for it. */
  isLost = false
  /** The status that its client got in place of an answer, as the rest of it could not be read. */
  refusedWith: number | undefined
  private bytes: Buffer | undefined
  private holding: Holding | undefined
  private changed = nobody
  private state: "unread" | "reading" | "discarding" = "unread"
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
    this.received += part.length
    if (!this.isLost) this.keep(part)
    this.changed()
    return this.state === "reading" || this.isLost || this.received === Number(this.headers["content-length"])
  }

  /** Reads on, and calls a function whenever something has arrived, until the request is answered. */
  readOn(changed: () => void): void {
    this.changed = changed
    this.state = "reading"
    changed()
    if (!this.complete) this._read(0)
  }

  /** Notes that all that has arrived is on somebody's account. */
  admitted(): void {
    this.holding?.shrink(0)
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
