import { Effect, Option } from "effect"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { makeLookUp } from "../connection/makeLookUp.ts"
import type { CredentialKey } from "../connection/rowOrder.ts"
import { columnTypes, type Recorded, recordedOf } from "../rows/credentialRows.ts"
import { makeWrite } from "./makeWrite.ts"
import { keyColumns, lockTargets, raisePools } from "../rows/poolRows.ts"

/** Deletes a credential. Returns false if there is none. */
export const deleteCredential = (pool: ConnectionPool) => {
  const { sql } = pool
  const { account_id, id, label, provider, workspace_id } = columnTypes
  const find = makeLookUp<CredentialKey, Recorded, Recorded>(pool, {
    operation: "credentials.locate",
    by: { account_id: "uuid", id: "uuid" },
    select: ({ account_id, id }) => sql<Recorded>`
      SELECT account_id, workspace_id, provider, label, id FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
    read: ({ account_id, id, label, provider, workspace_id }) => ({ account_id, id, label, provider, workspace_id })
  })
  const write = makeWrite<Recorded, CredentialKey>(pool, {
    operation: "credentials.delete",
    columns: { account_id, id, label, provider, workspace_id },
    actsOf: (found) => [{ action: "credential.delete", ...recordedOf(found) }],
    change: (passing, confine) => sql`
      ${lockTargets(sql, { wanted: "given", passing, confine }, sql`target.label = wanted.label`)}, changed AS (
        DELETE FROM credentials USING locked AS given
        WHERE credentials.account_id = given.account_id AND credentials.id = given.id ${confine("credentials")}
        RETURNING ${keyColumns(sql, "credentials")}, credentials.id, -1 AS members, -given.held AS bytes
      ), ${raisePools(sql, confine)}`,
    returning: ["account_id", "id"],
    recall: ({ account_id, id }) => Effect.succeed([{ account_id, id }])
  })
  /** Looks again if the credential has got another label meanwhile. */
  const remove = (account_id: AccountId, id: CredentialId): Answer<boolean> =>
    Effect.flatMap(
      find({ account_id, id }),
      Option.match({
        onNone: () => Effect.succeed(false),
        onSome: (found) =>
          Effect.flatMap(write(found), (deleted) =>
            Option.isSome(deleted) ? Effect.succeed(true) : remove(account_id, id)
          )
      })
    )
  return remove
}
