import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** How many requests of a connection may wait for earlier answers, and how large their heads may be together. */
const waitingLimit = { requests: 8, bytes: 32 * 1024 }

/** For how many sent answers to keep `lost`: the client has read all before them. */
const unreadLimit = 32

/** A request and its answer. */
export interface Exchange {
  readonly begin: () => void
  /** The size of its head, while it waits. */
  bytes?: number
  /** Undoes the answer: called if the client certainly did not read it. */
  lost?: (() => void) | undefined
}

/**
 * The requests of a connection. Invariants: it answers them one after the other, in order; at most eight wait, with heads of
 * 32 KiB together; and it calls `lost` at most once per answer: if it could not send the answer, or if the connection breaks
 * before the next request arrives with no answer pending, which shows that the client has read all earlier ones.
 */
export class Connection<Answered extends Exchange> {
  /** The request to answer now. */
  current: Answered | undefined
  readonly waiting: Array<Answered> = []
  private waitingBytes = 0
  /** `lost` of the answers that were sent and perhaps not read. */
  private readonly unread: Array<() => void> = []

  /** Whether another request, with a head of so many bytes, would exceed the limit of those that wait. */
  isFullFor(bytes: () => number): boolean {
    if (this.current === undefined) return false
    return this.waiting.length >= waitingLimit.requests || this.waitingBytes + bytes() > waitingLimit.bytes
  }

  /** Begins to answer a request, or lets it wait; returns whether it waits. */
  add(request: Answered, bytes: () => number): boolean {
    if (this.current !== undefined) {
      this.waitingBytes += request.bytes = bytes()
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
    if (current?.lost === undefined) return
    if (!isSent) return current.lost()
    if (this.unread.push(current.lost) > unreadLimit) this.unread.shift()
  }

  beginNext(): void {
    this.current = this.waiting.shift()
    this.waitingBytes -= this.current?.bytes ?? 0
    this.current?.begin()
  }

  /** Ends the connection and returns the requests that waited. `isRead` says that the client has read everything sent. */
  close(isRead: boolean): ReadonlyArray<Answered> {
    const waiting = this.waiting.splice(0)
    const unread = this.unread.splice(0)
    if (!isRead) for (const lost of unread) lost()
    return waiting
  }

  /** The requests without an answer yet. */
  get pending(): ReadonlyArray<Answered> {
    return this.current === undefined ? this.waiting : [this.current, ...this.waiting]
  }
}

/** A response without `strictContentLength`, which Effect sets: with it, Node writes an empty chunk after each response. */
export class ClientResponse<Request extends IncomingMessage = IncomingMessage>
  extends ServerResponse<Request>
  implements Exchange
{
  begin: () => void = () => {}
  bytes = 0
  lost: (() => void) | undefined
}
Object.defineProperty(ClientResponse.prototype, "strictContentLength", { get: () => false, set: () => {} })

/** Calls `lost` once if the client certainly did not read the response. */
export const whenLost = (response: ServerResponse, lost: () => void): void => {
  if (response.destroyed) lost()
  else if (response instanceof ClientResponse) response.lost = lost
}

/** Ends a connection at once. Resets TCP, so that the kernel drops unread bytes; Node cannot reset other sockets. */
export const cutOff = (socket: Socket): void => {
  try {
    socket.resetAndDestroy()
  } catch {
    socket.destroy()
  }
}
