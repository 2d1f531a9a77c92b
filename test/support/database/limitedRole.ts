import { randomBytes } from "node:crypto"
import { Effect } from "effect"
import { adminClient } from "./freshDatabase.ts"

/**
 * A role with the rights of the role of a URL, and a function that puts it into URLs; gone when the scope closes. `allow`
 * limits its connections, as `max_connections` limits all, after it has ended the open ones; -1 ends the limit.
 */
export const limitedRole = Effect.fnUntraced(function* (url: string) {
  const sql = yield* adminClient(url)
  const role = `byok_test_${randomBytes(6).toString("hex")}`
  const end = sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ${role}`
  yield* Effect.acquireRelease(
    sql.unsafe(`
      DO $$ BEGIN
        EXECUTE format('CREATE ROLE ${role} LOGIN PASSWORD ''of the role'' IN ROLE %I', current_user);
      END $$`),
    () => Effect.orDie(Effect.andThen(end, sql.unsafe(`DROP ROLE ${role}`)))
  )
  return {
    urlOf: (url: string) => url.replace(/\/\/[^@/]*@/, `//${role}:${encodeURIComponent("of the role")}@`),
    allow: (connections: number) =>
      Effect.andThen(sql.unsafe(`ALTER ROLE ${role} CONNECTION LIMIT ${connections}`), end)
  }
})
