import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** How many requests of a connection may wait for earlier answers, and the bytes of their heads together. */
const waitingLimit = { requests: 8, bytes: 32 * 1024 }

/** Maximum sent answers that count as unread. Older ones count as read. */
const unreadLimit = 32

/** A request and its answer. */
export interface Exchange {
  /** Begins to answer. */
  readonly begin: () => void
  /** The bytes of the request's head, while the request waits. */
  headBytes?: number
  /** Undoes the answer. Called if it could not be sent, or if the connection breaks while it may be unread. */
  onLost?: (() => void) | undefined
}

/**
 * The requests of a connection. Invariants: it answers them one after the other, in order; at most eight wait, with
 * heads of 32 KiB together; and it calls `onLost` at most once per answer: if the answer could not be sent, or if the
 * connection breaks while the answer may be unread. A request that arrives while none is pending shows that the client
 * has read all answers.
 */
export class Connection<Request extends Exchange> {
  /** The request to answer now. */
  current: Request | undefined
  readonly waiting: Array<Request> = []
  private waitingBytes = 0
  /** `onLost` of the answers that were sent and perhaps not read. */
  private readonly unread: Array<() => void> = []

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
    this.unread.length = 0
    this.current = request
    request.begin()
    return false
  }

  /** Ends the current request, once its answer is sent or never will be. */
  end(isSent: boolean): void {
    const { current } = this
    this.current = undefined
    if (current?.onLost === undefined) return
    if (!isSent) return current.onLost()
    if (this.unread.push(current.onLost) > unreadLimit) this.unread.shift()
  }

  /** Begins to answer the first waiting request, if any. */
  beginNext(): void {
    this.current = this.waiting.shift()
    this.waitingBytes -= this.current?.headBytes ?? 0
    this.current?.begin()
  }

  /** Call when the socket has closed. Returns the waiting requests. `isRead`: whether every sent answer was read. */
  close(isRead: boolean): ReadonlyArray<Request> {
    const waiting = this.waiting.splice(0)
    const unread = this.unread.splice(0)
    if (!isRead) for (const onLost of unread) onLost()
    return waiting
  }
}

/** A response that ignores `strictContentLength`, which Effect sets: with it, Node writes a needless empty chunk. */
export class ClientResponse<Request extends IncomingMessage = IncomingMessage>
  extends ServerResponse<Request>
  implements Exchange
{
  begin: () => void = () => {}
  headBytes = 0
  onLost: (() => void) | undefined
}
Object.defineProperty(ClientResponse.prototype, "strictContentLength", { get: () => false, set: () => {} })

/** Calls `onLost` at most once: if the response cannot be sent, or if the connection breaks while it may be unread. */
export const whenLost = (response: ServerResponse, onLost: () => void): void => {
  if (response.destroyed) onLost()
  else if (response instanceof ClientResponse) response.onLost = onLost
}

/** Ends a connection at once: resets TCP, which drops unsent bytes, or destroys a socket that Node cannot reset. */
export const cutOff = (socket: Socket): void => {
  try {
    socket.resetAndDestroy()
  } catch {
    socket.destroy()
  }
}
