import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** How many requests of a connection may wait for earlier answers, and the bytes of their heads together. */
const waitingLimit = { requests: 8, bytes: 32 * 1024 }

/** A request and its answer. */
export interface Exchange {
  /** Begins to answer. */
  readonly begin: () => void
  /** The bytes of the request's head, while the request waits. */
  headBytes?: number
}

/**
 * The requests of a connection. Invariants: it answers them one after the other, in order; at most eight wait, with
 * heads of 32 KiB together.
 */
export class Connection<Request extends Exchange> {
  /** The request to answer now. */
  current: Request | undefined
  readonly waiting: Array<Request> = []
  private waitingBytes = 0

  /** The requests without an answer yet. */
  get pending(): ReadonlyArray<Request> {
    return this.current === undefined ? this.waiting : [this.current, ...this.waiting]
  }

  /** Whether another request would have to wait, but the limits forbid it. `headBytes` is called only if it would. */
  isFullFor(headBytes: () => number): boolean {
    if (this.current === undefined) return false
    return this.waiting.length >= waitingLimit.requests || this.waitingBytes + headBytes() > waitingLimit.bytes
  }

  /** Begins to answer a request, or makes it wait for others; call `isFullFor` first. Returns whether it waits. */
  add(request: Request, headBytes: () => number): boolean {
    if (this.current !== undefined) {
      request.headBytes = headBytes()
      this.waitingBytes += request.headBytes
      this.waiting.push(request)
      return true
    }
    this.current = request
    request.begin()
    return false
  }

  /** Ends the current request, once its answer is sent or never will be. */
  end(): void {
    this.current = undefined
  }

  /** Begins to answer the first waiting request, if any. */
  beginNext(): void {
    this.current = this.waiting.shift()
    this.waitingBytes -= this.current?.headBytes ?? 0
    this.current?.begin()
  }

  /** Call when the socket has closed. Returns the waiting requests. */
  close(): ReadonlyArray<Request> {
    return this.waiting.splice(0)
  }
}

/** A response that ignores `strictContentLength`, which Effect sets: with it, Node writes a needless empty chunk. */
export class ClientResponse<Request extends IncomingMessage = IncomingMessage>
  extends ServerResponse<Request>
  implements Exchange
{
  begin: () => void = () => {}
  headBytes = 0
}
Object.defineProperty(ClientResponse.prototype, "strictContentLength", { get: () => false, set: () => {} })

/** Ends a connection at once: resets TCP, which drops unsent bytes, or destroys a socket that Node cannot reset. */
export const cutOff = (socket: Socket): void => {
  try {
    socket.resetAndDestroy()
  } catch {
    socket.destroy()
  }
}
