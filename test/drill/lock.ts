import { Effect } from "effect"
import { Client } from "pg"

/** Holds a lock in a transaction of its own until the scope closes. */
export const lock = (socket: string, statement: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new Client({ host: socket, user: "byok", database: "postgres" })
      await client.connect()
      await client.query("BEGIN")
      await client.query(statement)
      return client
    }),
    (client) => Effect.promise(() => client.end())
  )
