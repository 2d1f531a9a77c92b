import { Effect, type Scope } from "effect"
import type { SqlClient } from "effect/sql"
import { lockTable } from "../support/database/transactions.ts"

/** A state in which some part of the service fails while the scope is open. */
export interface Failure {
  readonly name: string
  readonly begin: (sql: SqlClient.SqlClient) => Effect.Effect<unknown, unknown, Scope.Scope>
}

const between = (name: string, enter: string, leave: string): Failure => ({
  name,
  begin: (sql) => {
    const run = (statements: string) =>
      Effect.orDie(Effect.forEach(statements.split(";"), (statement) => sql.unsafe(statement), { discard: true }))
    return Effect.acquireRelease(run(enter), () => run(leave))
  }
})

/** Makes sealing fail. No process may have sealed before: wraps are reserved in blocks. */
export const sealingIsRefused = between(
  "sealing is refused",
  `UPDATE keks SET wraps = ${2 ** 32}`,
  "UPDATE keks SET wraps = 0"
)

export const rowIsRefused = between(
  "a row is refused, with a message that quotes it",
  "ALTER TABLE credentials ADD CONSTRAINT refused CHECK (length(label) < 0) NOT VALID",
  "ALTER TABLE credentials DROP CONSTRAINT refused"
)

export const databaseFailures: ReadonlyArray<Failure> = [
  between("there is no table of keys", "ALTER TABLE api_keys RENAME TO gone", "ALTER TABLE gone RENAME TO api_keys"),
  between(
    "there is no table of credentials",
    "ALTER TABLE credentials RENAME TO gone",
    "ALTER TABLE gone RENAME TO credentials"
  ),
  between(
    "a column takes no text",
    "ALTER TABLE credentials RENAME COLUMN label TO label_gone; ALTER TABLE credentials ADD COLUMN label integer",
    "ALTER TABLE credentials DROP COLUMN label; ALTER TABLE credentials RENAME COLUMN label_gone TO label"
  ),
  {
    name: "tables are locked",
    begin: (sql) => Effect.all([lockTable(sql, "credentials"), lockTable(sql, "pools")])
  }
]
