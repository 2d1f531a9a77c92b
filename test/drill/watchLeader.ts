import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { Client } from "pg"
import { untilClosed } from "./untilClosed.ts"

const limit = 1_000

const write = async (url: string, statement: string) => {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: limit, query_timeout: limit })
  client.on("error", () => undefined)
  try {
    await client.connect()
    await client.query(statement)
    return true
  } catch {
    return false
  } finally {
    await Promise.race([client.end().catch(() => undefined), setTimeout(limit, undefined, { ref: false })])
  }
}

/**
 * Keeps writing over new connections until the scope closes. Returns the times at which that succeeded, in milliseconds
 * of the monotonic clock: the times at which clients could reach a leader.
 */
export const watchLeader = Effect.fnUntraced(function* (url: string) {
  const seen: Array<number> = []
  yield* Effect.promise(() => write(url, "CREATE TABLE drill (id int)"))
  yield* untilClosed(async () => {
    if (await write(url, "INSERT INTO drill VALUES (1)")) seen.push(performance.now())
    await setTimeout(50)
  })
  return seen
})
