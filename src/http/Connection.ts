import { type IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** How many requests of a connection may wait for the answer before theirs, and of how many bytes their heads may be. */
const mostWaiting = { requests: 8, bytes: 32 * 1024 }

/** Of how many answers it is remembered what to do if they were not read; the client has read those before. */
const mostUnread = 32

/** A request to be answered. */
export interface Exchange {
  /** Begins to answer. */
  readonly begin: () => void
  /** How many bytes its head takes, while it waits. */
  bytes?: number
  /** Called if the client surely did not read the answer. */
  lost?: (() => void) | undefined
}

/**
 * The requests of a connection. Invariant: they are answered one after the other, in their order; those that wait are at most
 * eight, of 32 KiB; and of each answer it is told at most once that it was lost: if it could not be sent, or the connection
 * breaks before the client asks again with nothing left to be answered, which shows that it has read all before.
 */
export class Connection<Answered extends Exchange> {
  /** The one that is being answered. */
  current: Answered | undefined
  readonly waiting: Array<Answered> = []
  private waitingBytes = 0
  /** What to call if answers that were sent turn out not to have been read. */
  private unread: Array<() => void> = []

  /** Whether a further request with a head of so many bytes would be too much. */
  isFullFor(bytes: () => number): boolean {
    if (this.current === undefined) return false
    return this.waiting.length >= mostWaiting.requests || this.waitingBytes + bytes() > mostWaiting.bytes
  }

  /** Answers a request, or has it wait; returns whether it waits. */
  arrived(request: Answered, bytes: () => number): boolean {
    if (this.current !== undefined) {
      this.waitingBytes += request.bytes = bytes()
      this.waiting.push(request)
      return true
    }
    if (this.unread.length > 0) this.unread = []
    this.current = request
    request.begin()
    return false
  }

  /** The current answer was sent, or never will be. */
  ended(isSent: boolean): void {
    const { current } = this
    this.current = undefined
    if (current?.lost === undefined) return
    if (!isSent) return current.lost()
    if (this.unread.push(current.lost) > mostUnread) this.unread.shift()
  }

  /** Begins the next answer. */
  goOn(): void {
    this.current = this.waiting.shift()
    this.waitingBytes -= this.current?.bytes ?? 0
    this.current?.begin()
  }

  /** The connection is over: either its client has read all that was sent, or that is not known of what it was sent last. */
  closed(isRead: boolean): ReadonlyArray<Answered> {
    const left = this.waiting.splice(0)
    if (!isRead) for (const lost of this.unread) lost()
    this.unread = []
    return left
  }

  /** Those that are not answered yet. */
  get pending(): ReadonlyArray<Answered> {
    return this.current === undefined ? this.waiting : [this.current, ...this.waiting]
  }
}

/** A response that is written at once: Effect asks Node to count its bytes, for which Node writes an empty piece behind each. */
export class ClientResponse<Request extends IncomingMessage = IncomingMessage>
  extends ServerResponse<Request>
  implements Exchange
{
  begin: () => void = () => {}
  bytes = 0
  lost: (() => void) | undefined
}
Object.defineProperty(ClientResponse.prototype, "strictContentLength", { get: () => false, set: () => {} })

/** Calls a function once if the client surely did not read the response. */
export const whenLost = (response: ServerResponse, lost: () => void): void => {
  if (response.destroyed) lost()
  else if (response instanceof ClientResponse) response.lost = lost
}

/** Ends a connection whatever its client does. Node can reset one of TCP alone, for which the kernel forgets what was not read. */
export const cutOff = (socket: Socket): void => {
  try {
    socket.resetAndDestroy()
  } catch {
    socket.destroy()
  }
}
