import type { Socket } from "node:net"
import { TLSSocket } from "node:tls"
import { Effect, Redacted, type Scope } from "effect"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { connectTo } from "../support/database/DatabaseProxy.ts"
import { listen } from "../support/database/listen.ts"

/** A network between the service and its database that fails as networks do. */
export interface FaultyProxy {
  /** The URL that leads to the database through the proxy. */
  readonly url: string
  /** Drops everything in both directions from now on, silently. Dropped bytes are never sent later. */
  readonly swallow: () => void
  /** Delays everything that the database sends by some milliseconds from now on. */
  readonly delay: (milliseconds: number) => void
  /** Passes one byte a second in each direction of each connection from now on. */
  readonly trickle: () => void
  /** Passes everything again, on new connections and on those that have lost nothing. */
  readonly forward: () => void
  /** Cuts every connection at once. */
  readonly reset: () => void
  /** New connections lead to another database. */
  readonly leadTo: (databaseUrl: string) => void
  /** How many connections have lost something. */
  readonly swallowed: () => number
}

type Mode = "forward" | "swallow" | "trickle" | { readonly delay: number }

/** Passes bytes on in order, by the current mode. Returns a function to call when the mode has changed. */
const pass = (to: Socket, mode: () => Mode, delayed: boolean) => {
  const waiting: Array<{ bytes: Buffer; readonly due: number }> = []
  let timer: NodeJS.Timeout | undefined
  const later = (milliseconds: number) => void (timer ??= setTimeout(look, milliseconds).unref())
  const look = () => {
    timer = undefined
    for (let first = waiting[0]; first !== undefined; first = waiting[0]) {
      const now = mode()
      if (now === "trickle") {
        to.write(first.bytes.subarray(0, 1))
        first.bytes = first.bytes.subarray(1)
        if (first.bytes.length === 0) waiting.shift()
        return later(1_000)
      }
      const early = now === "forward" ? 0 : first.due - performance.now()
      if (early > 0) return later(early)
      to.write(first.bytes)
      waiting.shift()
    }
  }
  return {
    arrived: (bytes: Buffer) => {
      const now = mode()
      const due = performance.now() + (delayed && typeof now === "object" ? now.delay : 0)
      waiting.push({ bytes, due })
      if (timer === undefined) look()
    },
    changed: () => {
      clearTimeout(timer)
      look()
    }
  }
}

/** Starts a proxy. With a certificate, speaks TLS to clients, and closes without an answer if the database is unreachable. */
export const faultyProxy = (
  databaseUrl: string,
  tls?: { readonly key: string; readonly certificate: string }
): Effect.Effect<FaultyProxy, never, Scope.Scope> => {
  const pairs = new Map<readonly [Socket, Socket], { readonly changed: () => void; readonly raw: Socket }>()
  const dead = new Set<Socket>()
  let target = parseDatabaseUrl(Redacted.make(databaseUrl))
  let mode: Mode = "forward"
  const change = (to: Mode) => {
    mode = to
    for (const { changed } of pairs.values()) changed()
  }
  const { database, password, username } = target
  const user = [username, ...(password === undefined ? [] : [Redacted.value(password)])].map(encodeURIComponent)
  const serve = (raw: Socket) => {
    const upstream = connectTo(target)
    if (tls === undefined) return join(raw, raw, upstream)
    upstream
      .on("error", () => raw.destroy())
      .once("connect", () => {
        // The first message asks for TLS.
        raw.once("data", () => {
          raw.write("S")
          join(new TLSSocket(raw, { isServer: true, key: tls.key, cert: tls.certificate }), raw, upstream)
        })
      })
    raw.on("close", () => upstream.destroy())
  }
  const join = (client: Socket, raw: Socket, upstream: Socket) => {
    const pair = [client, upstream] as const
    const ways = [pair, [upstream, client] as const].map(([from, to]) => {
      const way = pass(to, () => mode, from === upstream)
      from.on("data", (bytes: Buffer) => {
        if (mode === "swallow") dead.add(client)
        if (!dead.has(client)) way.arrived(bytes)
      })
      from.on("error", () => from.destroy())
      from.on("close", () => {
        to.destroy()
        pairs.delete(pair)
      })
      return way
    })
    pairs.set(pair, { changed: () => ways.forEach(({ changed }) => changed()), raw })
  }
  return Effect.map(listen(serve), (port) => ({
    url: `postgres://${user.join(":")}@127.0.0.1:${port}/${encodeURIComponent(database)}${tls === undefined ? "" : "?sslmode=verify-full"}`,
    swallow: () => change("swallow"),
    delay: (milliseconds) => change({ delay: milliseconds }),
    trickle: () => change("trickle"),
    forward: () => change("forward"),
    reset: () => Array.from(pairs.values()).forEach(({ raw }) => raw.resetAndDestroy()),
    leadTo: (databaseUrl) => void (target = parseDatabaseUrl(Redacted.make(databaseUrl))),
    swallowed: () => dead.size
  }))
}
