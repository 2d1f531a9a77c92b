import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { OwnedCredential } from "../../domain/Identifiers.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import type { Query } from "../connection/Query.ts"
import { keyColumns, samePool } from "../credentials/poolRows.ts"

/** The pools of credentials, each once, for those of one account where Citus confines a statement to one node. */
const poolsOf = (
  sql: SqlClient.SqlClient,
  credentials: ReadonlyArray<OwnedCredential>,
  node: Statement.Fragment
) => sql`
  SELECT DISTINCT ${keyColumns(sql, "credentials")} FROM credentials
  JOIN unnest(
    ${credentials.map(({ account_id }) => account_id)}::uuid[],
    ${credentials.map(({ credential_id }) => credential_id)}::uuid[]
  ) AS wanted (account_id, credential_id)
  ON credentials.account_id = wanted.account_id AND credentials.id = wanted.credential_id ${node}`

/**
 * Changes parkings of credentials in one transaction, under the locks of their pools, which are taken in the order of
 * their keys. `change` names the credentials whose parkings it has changed: the `health` of their pools is raised.
 */
export const changeHealth = <A>(
  { distributed, sql }: ConnectionPool,
  credentials: ReadonlyArray<OwnedCredential>,
  change: Query<{ readonly changed: ReadonlyArray<OwnedCredential>; readonly answer: A }>
): Query<A> => {
  const [first] = credentials
  const confine = (table: string) =>
    distributed && first !== undefined ? sql`AND ${sql.literal(table)}.account_id = ${first.account_id}` : sql``
  return Effect.gen(function* () {
    yield* sql`
      SELECT FROM pools JOIN (${poolsOf(sql, credentials, confine("credentials"))}) AS wanted ON ${samePool(sql, "pools", "wanted")}
      ${confine("pools")} ORDER BY ${keyColumns(sql, "pools")} FOR NO KEY UPDATE OF pools`
    const { answer, changed } = yield* change
    if (changed.length > 0) {
      yield* sql`
        UPDATE pools SET health = health + 1 FROM (${poolsOf(sql, changed, confine("credentials"))}) AS changed
        WHERE ${samePool(sql, "pools", "changed")} ${confine("pools")}`
    }
    return answer
  }).pipe(sql.withTransaction)
}
