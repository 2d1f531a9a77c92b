import { Effect, Exit, Scope } from "effect"
import type { SqlClient } from "effect/sql"
import { eventually } from "../process/eventually.ts"

/** Runs a statement in a transaction. Returns an effect that ends the transaction; the end of the scope does so too. */
export const holdOpen = (sql: SqlClient.SqlClient, statement: string) =>
  Effect.flatMap(Scope.make(), (scope) => {
    const begin = Effect.gen(function* () {
      const connection = yield* Scope.provide(sql.reserve, scope)
      const execute = (text: string) => Effect.orDie(connection.executeUnprepared(text, [], undefined))
      yield* Scope.addFinalizer(scope, execute("COMMIT"))
      yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
      yield* execute("BEGIN")
      yield* execute(statement)
    })
    return Effect.as(begin, Scope.close(scope, Exit.void))
  })

/** Locks a table exclusively. Returns an effect that releases the lock; the end of the scope does so too. */
export const lockTable = (sql: SqlClient.SqlClient, table: string) =>
  holdOpen(sql, `LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`)

/** How many statements that contain a text wait for a lock in the database of the client. */
export const waitingForLock = (sql: SqlClient.SqlClient, text = "") =>
  Effect.map(
    sql<{ n: number }>`
      SELECT count(*)::int AS n FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active'
      AND strpos(query, ${text}) > 0`,
    (rows) => rows[0]?.n ?? 0
  )

/** Waits until exactly this many statements wait for a lock. */
export const untilWaiting = (sql: SqlClient.SqlClient, count: number) =>
  eventually(`${count} statements wait for a lock`, waitingForLock(sql), (n) => n === count)

/** Ends the connections whose statements wait for a lock. */
const terminateWaiting = (sql: SqlClient.SqlClient) => sql`
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active'`

/** Ends the connection of the one statement that waits for a lock, and releases the lock once its repeat waits. */
export const disconnectWaiting = <A, E>(admin: SqlClient.SqlClient, release: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    yield* untilWaiting(admin, 1)
    yield* terminateWaiting(admin)
    yield* untilWaiting(admin, 1)
    yield* release
  })

/** Makes every insert into a table fail with this SQLSTATE. */
export const refuseInserts = (sql: SqlClient.SqlClient, table: string, sqlstate: string) =>
  Effect.andThen(
    sql.unsafe(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'canary' USING ERRCODE = '${sqlstate}'; END $$`),
    sql.unsafe(`CREATE TRIGGER refuse BEFORE INSERT ON ${table} FOR EACH STATEMENT EXECUTE FUNCTION refuse()`)
  )
