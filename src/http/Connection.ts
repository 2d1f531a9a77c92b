import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** How many requests of a connection may wait for earlier answers, and how large their heads may be together. */
const waitingLimit = { requests: 8, bytes: 32 * 1024 }

/** How many of the latest sent answers may be unread: the client has read all earlier ones. */
const unreadLimit = 32

/** A request and its answer. */
export interface Exchange {
  /** Begins to answer. */
  readonly begin: () => void
  /** The size of the request's head, while the request waits. */
  headBytes?: number
  /** Undoes the answer. Called if the client certainly did not read it. */
  onLost?: (() => void) | undefined
}

/**
 * The requests of a connection. Invariants: it answers them one after the other, in order; at most eight wait, with heads of
 * 32 KiB together; and it calls `onLost` at most once per answer: if the answer could not be sent, or if the connection breaks
 * while the answer may be unread. A request that arrives while none is pending shows that the client has read all answers.
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

  /** Whether the limits forbid another request, which would have to wait. */
  isFullFor(headBytes: () => number): boolean {
    if (this.current === undefined) return false
    return this.waiting.length >= waitingLimit.requests || this.waitingBytes + headBytes() > waitingLimit.bytes
  }

  /** Begins to answer a request, or lets it wait while another is answered. Returns whether it waits. */
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

  /** Ends the current request, whose answer was sent or never will be. */
  end(isSent: boolean): void {
    const { current } = this
    this.current = undefined
    if (current?.onLost === undefined) return
    if (!isSent) return current.onLost()
    if (this.unread.push(current.onLost) > unreadLimit) this.unread.shift()
  }

  beginNext(): void {
    this.current = this.waiting.shift()
    this.waitingBytes -= this.current?.headBytes ?? 0
    this.current?.begin()
  }

  /** Ends the connection and returns the requests that waited. `isRead`: whether the client has read every sent answer. */
  close(isRead: boolean): ReadonlyArray<Request> {
    const waiting = this.waiting.splice(0)
    const unread = this.unread.splice(0)
    if (!isRead) for (const onLost of unread) onLost()
    return waiting
  }
}

/** A response without `strictContentLength`, which Effect sets: with it, Node writes an empty chunk after each response. */
export class ClientResponse<Request extends IncomingMessage = IncomingMessage>
  extends ServerResponse<Request>
  implements Exchange
{
  begin: () => void = () => {}
  headBytes = 0
  onLost: (() => void) | undefined
}
Object.defineProperty(ClientResponse.prototype, "strictContentLength", { get: () => false, set: () => {} })

/** Calls `onLost` once if the client certainly did not read the response. */
export const whenLost = (response: ServerResponse, onLost: () => void): void => {
  if (response.destroyed) onLost()
  else if (response instanceof ClientResponse) response.onLost = onLost
}

/** Ends a connection at once. Resets TCP, so that the kernel drops unsent bytes; destroys sockets that Node cannot reset. */
export const cutOff = (socket: Socket): void => {
  try {
    socket.resetAndDestroy()
  } catch {
    socket.destroy()
  }
}
