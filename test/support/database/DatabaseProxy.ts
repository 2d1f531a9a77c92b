import { connect, type Socket } from "node:net"
import { join } from "node:path"
import { Effect, Redacted, type Scope } from "effect"
import { type DatabaseTarget, parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { listen } from "./listen.ts"

/** A proxy between the service and its database, without TLS, that reads messages and can lose answers. */
export interface DatabaseProxy {
  readonly target: DatabaseTarget
  /** How many times PostgreSQL was asked to cancel a statement. */
  readonly cancels: () => number
  /** Loses the next answer that contains a text, after skipping `after` of them, and ends the connection after `meanwhile`. */
  readonly loseAnswer: (text: string, after?: number, meanwhile?: Effect.Effect<unknown, unknown>) => void
  /** How many answers were lost. */
  readonly lost: () => number
}

/** A connection to the server of a database. */
export const connectTo = ({ host, port }: Pick<DatabaseTarget, "host" | "port">) =>
  host.startsWith("/") ? connect(join(host, `.s.PGSQL.${port}`)) : connect(port, host)

const cancelRequestCode = 80877102

/** Starts a proxy. `change` edits PostgreSQL's messages, as a pooler may. */
export const databaseProxy = (
  databaseUrl: string,
  change = (bytes: Buffer): Buffer => bytes
): Effect.Effect<DatabaseProxy, never, Scope.Scope> => {
  const target = parseDatabaseUrl(Redacted.make(databaseUrl))
  let cancels = 0
  let losing: string | undefined
  let passing = 0
  let beforeLoss: Effect.Effect<unknown, unknown> = Effect.void
  let lost = 0
  const serve = (client: Socket) => {
    const database = connectTo(target)
    const destroy = () => {
      for (const socket of [client, database]) socket.destroy()
    }
    for (const socket of [client, database]) socket.on("error", destroy).on("close", destroy)
    client.on("data", (bytes: Buffer) => {
      if (bytes.length === 16 && bytes.readUInt32BE(4) === cancelRequestCode) cancels += 1
      database.write(bytes)
    })
    database.on("data", (bytes: Buffer) => {
      if (losing === undefined || !bytes.includes(losing) || passing-- > 0) return void client.write(change(bytes))
      losing = undefined
      lost += 1
      void Effect.runPromise(Effect.orDie(beforeLoss)).finally(destroy)
    })
  }
  return Effect.map(listen(serve), (port) => ({
    target: { ...target, host: "127.0.0.1", port, tls: undefined },
    cancels: () => cancels,
    loseAnswer: (text, after = 0, meanwhile = Effect.void) => {
      losing = text
      passing = after
      beforeLoss = meanwhile
    },
    lost: () => lost
  }))
}
