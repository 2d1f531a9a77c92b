import { assert } from "@effect/vitest"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { Effect, Redacted } from "effect"
import { parseDatabaseUrl } from "../../src/sql/DatabaseTarget.ts"

/** What lies between the service and its database, and fails as networks do. */
export interface FaultyProxy {
  /** Where the database seems to be. */
  readonly url: string
  /** From now on nothing passes, in neither direction, and nobody is told; what was lost once stays lost. */
  readonly swallow: () => void
  /** From now on connections pass again, those of which nothing was swallowed and new ones. */
  readonly forward: () => void
  /** Cuts every connection at once. */
  readonly reset: () => void
  /** How many connections have lost something. */
  readonly swallowed: () => number
}

export const faultyProxy = (databaseUrl: string) =>
  Effect.acquireRelease(
    Effect.callback<FaultyProxy & { readonly close: Effect.Effect<unknown> }>((resume) => {
      const { database, host, port, username } = parseDatabaseUrl(Redacted.make(databaseUrl))
      const pairs = new Set<readonly [Socket, Socket]>()
      const dead = new Set<Socket>()
      let swallowing = false
      const server = createServer((client) => {
        const upstream = host.startsWith("/") ? connect(join(host, `.s.PGSQL.${port}`)) : connect(port, host)
        const pair = [client, upstream] as const
        pairs.add(pair)
        for (const [from, to] of [pair, [upstream, client] as const]) {
          from.on("data", (bytes: Buffer) => {
            if (swallowing) dead.add(client)
            if (!dead.has(client)) to.write(bytes)
          })
          from.on("error", () => from.destroy())
          from.on("close", () => {
            to.destroy()
            pairs.delete(pair)
          })
        }
      }).listen(0, "127.0.0.1", () => {
        const address = server.address()
        assert(typeof address === "object" && address !== null)
        const close = Effect.promise(() => {
          for (const socket of Array.from(pairs).flat()) socket.destroy()
          return new Promise((resolve) => server.close(resolve))
        })
        resume(
          Effect.succeed({
            url: `postgres://${encodeURIComponent(username)}@127.0.0.1:${address.port}/${encodeURIComponent(database)}`,
            swallow: () => void (swallowing = true),
            forward: () => void (swallowing = false),
            reset: () => Array.from(pairs).forEach(([client]) => client.resetAndDestroy()),
            swallowed: () => dead.size,
            close
          })
        )
      })
    }),
    ({ close }) => close
  )
