import { assert } from "@effect/vitest"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { Effect, Redacted } from "effect"
import { type DatabaseTarget, parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"

/** A stand between the service and its database, without TLS, that listens and can cut. */
export interface DatabaseProxy {
  readonly target: DatabaseTarget
  /** How often somebody asked PostgreSQL to cancel a statement. */
  readonly cancels: () => number
  /** The next answer of PostgreSQL that holds this text is lost, and the connection with it. */
  readonly loseAnswer: (text: string) => void
  /** How many answers were lost. */
  readonly lost: () => number
}

const cancelRequestCode = 80877102

export const databaseProxy = (databaseUrl: string) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly proxy: DatabaseProxy; readonly close: Effect.Effect<unknown> }>((resume) => {
      const target = parseDatabaseUrl(Redacted.make(databaseUrl))
      const open = new Set<Socket>()
      let cancels = 0
      let losing: string | undefined
      let lost = 0
      const server = createServer((client) => {
        const database = target.host.startsWith("/")
          ? connect(join(target.host, `.s.PGSQL.${target.port}`))
          : connect(target.port, target.host)
        const destroy = () => {
          for (const socket of [client, database]) socket.destroy()
        }
        for (const socket of [client, database]) {
          open.add(socket)
          socket.on("error", destroy).on("close", destroy)
        }
        client.on("data", (bytes: Buffer) => {
          if (bytes.length === 16 && bytes.readUInt32BE(4) === cancelRequestCode) cancels += 1
          database.write(bytes)
        })
        database.on("data", (bytes: Buffer) => {
          if (losing === undefined || !bytes.includes(losing)) return void client.write(bytes)
          losing = undefined
          lost += 1
          destroy()
        })
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        assert(typeof address === "object" && address !== null)
        const proxy: DatabaseProxy = {
          target: { ...target, host: "127.0.0.1", port: address.port, tls: undefined },
          cancels: () => cancels,
          loseAnswer: (text) => void (losing = text),
          lost: () => lost
        }
        const close = Effect.promise(() => {
          for (const socket of open) socket.destroy()
          return new Promise((resolve) => server.close(resolve))
        })
        resume(Effect.succeed({ proxy, close }))
      })
    }),
    ({ close }) => close
  ).pipe(Effect.map(({ proxy }) => proxy))
