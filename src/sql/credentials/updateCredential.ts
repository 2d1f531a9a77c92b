import { Effect, Option } from "effect"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { Credential } from "../../domain/Credential.ts"
import { ChangeableField } from "../../domain/CredentialChanges.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import type { CredentialUpdate, PoolFull, PoolLimits } from "../../port/CredentialRepository.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import type { CredentialKey } from "../connection/rowOrder.ts"
import { bytesOf, columnTypes, memberBytesOf, recordedOf } from "../rows/credentialRows.ts"
import { makeWrite } from "./makeWrite.ts"
import { fits, keyColumns, lockTargets, makeFindRoom, memberBytes, raisePools, refuseBytes } from "../rows/poolRows.ts"

/** The columns that an update writes, beside those of the key. */
const policyColumns = ["label", ...ChangeableField.literals.filter((field) => field !== "key")] as const
const sealedColumns = ["kek_id", "wrapped_dek", "sealed"] as const

/** The credential as it will be; the columns of a key that stays as it is are null. */
type Values = Credential &
  Pick<CredentialUpdate, "revision" | "key_version" | "fields"> & { readonly account_id: AccountId } & {
    readonly [K in keyof SealedKey]: SealedKey[K] | null
  }

const actsOf = (values: Values): ReadonlyArray<AuditAct> => {
  const { fields, key_version, revision } = values
  const recorded = recordedOf(values)
  return [
    { action: "credential.update", ...recorded, revision: revision + 1, fields },
    ...(fields.includes("key") ? [{ action: "credential.rotate", ...recorded, key_version } as const] : [])
  ]
}

/** Updates a credential that still has the revision that was read, if its pool has room for what it becomes. */
export const updateCredential = (pool: ConnectionPool, limits: PoolLimits) => {
  const { sql } = pool
  const find = makeFindRoom(pool)
  const assignments = sql.csv([
    ...policyColumns.map((column) => sql`${sql(column)} = given.${sql(column)}`),
    ...sealedColumns.map((column) => sql`${sql(column)} = coalesce(given.${sql(column)}, credentials.${sql(column)})`),
    sql`key_version = given.key_version, revision = credentials.revision + 1`
  ])
  const sameRow = (table: string) =>
    sql.literal(
      `${table}.account_id = given.account_id AND ${table}.id = given.id AND ${table}.revision = given.revision`
    )
  const growth = sql`
    ${bytesOf(sql, "given")} + octet_length(coalesce(given.sealed, before.sealed)) - ${memberBytes(sql, "before")}`
  const isPossible = sql`
    target.revision = wanted.revision AND ${fits(sql, limits, { own: "growth", together: "pool_growth" })}`

  const write = makeWrite<Values, CredentialKey, PoolFull>(pool, {
    operation: "credentials.update",
    columns: { ...columnTypes, revision: "integer", key_version: "integer" },
    actsOf,
    sizeOf: memberBytesOf,
    change: (passing, confine) => sql`
      sized AS (
        SELECT given.*, ${growth} AS growth,
          sum(greatest(${growth}, 0)) OVER (PARTITION BY ${keyColumns(sql, "given")}) AS pool_growth
        FROM given JOIN credentials AS before ON ${sameRow("before")} ${confine("before")}
      ), ${lockTargets(sql, { wanted: "sized", passing, confine }, isPossible)}, changed AS (
        UPDATE credentials SET ${assignments} FROM locked AS given WHERE ${sameRow("credentials")} ${confine("credentials")}
        RETURNING ${keyColumns(sql, "credentials")}, credentials.id, 0 AS members, given.growth AS bytes
      ), ${raisePools(sql, confine)}`,
    returning: ["account_id", "id"],
    recall: ({ account_id, id }) => Effect.succeed([{ account_id, id }]),
    refusal: (row) =>
      Effect.flatMap(find(row), (room) =>
        room === undefined || room.held === null
          ? Effect.void
          : refuseBytes(room, limits, memberBytesOf(row) + (row.sealed === null ? (room.sealed ?? 0) : 0))
      )
  })

  return (account_id: AccountId, { credential, fields, key_version, revision, sealed }: CredentialUpdate) => {
    const key = sealed ?? { kek_id: null, wrapped_dek: null, sealed: null }
    return Effect.map(write({ ...credential, ...key, account_id, fields, key_version, revision }), Option.isSome)
  }
}
