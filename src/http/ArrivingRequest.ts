import { randomUUID } from "node:crypto"
import { IncomingMessage } from "node:http"

/** The id in the client's header if it is 1 to 128 characters of `[A-Za-z0-9._-]`, else a new one (D12). */
export const requestIdOf = (header: string | ReadonlyArray<string> | undefined): string =>
  typeof header === "string" && /^[A-Za-z0-9._-]{1,128}$/.test(header) ? header : randomUUID()

/** Whether a header was sent more than once. Node joins the values with a comma, so the raw headers decide. */
export const isRepeated = (
  { headers, rawHeaders }: Pick<IncomingMessage, "headers" | "rawHeaders">,
  header: string
): boolean =>
  headers[header]?.includes(",") === true &&
  rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === header).length > 1

/**
 * Maximum unadmitted bytes of all bodies together. Bytes of a body are unadmitted until the memory budget has reserved
 * memory for them.
 */
const unadmittedLimit = 12 * 1024 * 1024

/** Maximum bytes of a body to read and discard once the request is answered. */
const discardLimit = 256 * 1024

/** The requests whose bodies have unadmitted bytes, ordered by when each began to have some. */
const unadmittedRequests = new Set<ArrivingRequest>()
let unadmittedTotal = 0

/** The unadmitted bytes of all bodies together. */
export const unadmittedBytes = () => unadmittedTotal

const noop = () => {}

/**
 * A request that collects its body in one buffer, without the object that a stream makes for each chunk. Invariants:
 * before `readAll`, it keeps no more of the body than one read of the socket brings; and all bodies together have at
 * most 12 MiB of unadmitted bytes, because the largest is dropped if they have more. After `readAll`, it reads even
 * while the body waits for memory, to notice a client that leaves.
 */
export class ArrivingRequest extends IncomingMessage {
  /** How many bytes of the body have arrived; after `discard`, only those since then. */
  received = 0
  /** Whether the body was dropped for lack of memory. */
  isDropped = false
  /** Called for each chunk of a body without declared length. */
  onChunk = noop
  /** The status with which the server refused the request while the rest of it arrived; otherwise undefined. */
  refusedWith: number | undefined
  private buffer: Buffer | undefined
  /** The unadmitted bytes in `buffer`. */
  private unadmitted = 0
  private onProgress = noop
  private state: "paused" | "reading" | "discarding" = "paused"
  private onExcess = noop

  /** Whether the whole body has arrived: before `complete`, where its length was declared. */
  get hasArrived(): boolean {
    return this.complete || this.received === Number(this.headers["content-length"])
  }

  /** Whether the client waits for 100 Continue before it sends the body. */
  get expectsContinue(): boolean {
    const { complete, headers, httpVersion, received } = this
    return headers.expect !== undefined && httpVersion === "1.1" && !complete && received === 0
  }

  /** Takes a chunk of the body from Node, or null at its end. Returns whether Node may read on. */
  override push(chunk: Buffer | null): boolean {
    if (chunk === null) {
      const isOpen = super.push(null)
      this.onProgress()
      return isOpen
    }
    this.onChunk()
    if (this.state === "discarding") {
      this.discardChunk(chunk)
      return true
    }
    this.received += chunk.length
    if (!this.isDropped) this.countUnadmitted(chunk.length)
    // Counting may have dropped this body.
    if (this.isDropped) chunk.fill(0)
    else this.append(chunk)
    this.onProgress()
    return this.hasArrived || this.state === "reading" || this.isDropped
  }

  /** Reads the rest. Calls `onProgress` at once, then for each chunk, the end and a drop, until the body is wiped. */
  readAll(onProgress: () => void): void {
    this.onProgress = onProgress
    this.state = "reading"
    onProgress()
    if (!this.hasArrived) this._read(0)
  }

  /** Counts the body as admitted, once the memory budget has reserved memory for all bytes that have arrived. */
  markAdmitted(): void {
    this.countUnadmitted(-this.unadmitted)
  }

  /** Counts the whole body as unadmitted again, once its memory in the budget is released. */
  markUnadmitted(): void {
    this.countUnadmitted(this.received - this.unadmitted)
  }

  /** Returns the whole body, which the caller must overwrite after use. Lets the stream end. */
  takeBody(): Buffer {
    const body = this.buffer?.subarray(0, this.received) ?? Buffer.alloc(0)
    this.buffer = undefined
    this.markAdmitted()
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

  /** Wipes the body, frees its memory and reports no more progress. */
  wipe(): void {
    this.onProgress = noop
    this.freeBuffer()
  }

  private discardChunk(chunk: Buffer): void {
    this.received += chunk.length
    chunk.fill(0)
    if (this.received <= discardLimit) return
    this.onExcess()
    this.onExcess = noop
  }

  private countUnadmitted(bytes: number): void {
    this.unadmitted += bytes
    unadmittedTotal += bytes
    if (this.unadmitted > 0) unadmittedRequests.add(this)
    else unadmittedRequests.delete(this)
    if (unadmittedTotal > unadmittedLimit) ArrivingRequest.dropLargest()
  }

  /** Drops the body with the most unadmitted bytes; of equals, the last. Frees at least the bytes that just arrived. */
  private static dropLargest(): void {
    const requests = Array.from(unadmittedRequests)
    const largest = requests.reduce((one, other) => (other.unadmitted >= one.unadmitted ? other : one))
    largest.isDropped = true
    largest.freeBuffer()
    largest.onProgress()
  }

  private freeBuffer(): void {
    this.buffer?.fill(0)
    this.buffer = undefined
    this.markAdmitted()
  }

  /** Keeps the first chunk as the buffer, and appends later ones. A full buffer is copied to one of twice the size. */
  private append(chunk: Buffer): void {
    const { buffer, received } = this
    if (buffer === undefined) {
      this.buffer = chunk
      return
    }
    const offset = received - chunk.length
    if (received > buffer.length) {
      this.buffer = Buffer.alloc(Math.max(received, 2 * buffer.length))
      buffer.copy(this.buffer, 0, 0, offset)
      buffer.fill(0)
    }
    chunk.copy(this.buffer ?? buffer, offset)
    chunk.fill(0)
  }
}
