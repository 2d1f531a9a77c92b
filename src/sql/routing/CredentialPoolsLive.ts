import { Effect, Layer, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import { CredentialPools, type PoolOwner, type PoolRow, type StoredParking } from "../../port/CredentialPools.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp } from "../connection/makeLookUp.ts"
import { credentialOf, sealedColumns, type Stored } from "../credentials/credentialRows.ts"
import type { PoolKey } from "../credentials/poolRows.ts"

type Place = Readonly<Record<keyof PoolKey, Statement.Fragment | string>>

interface Asked extends PoolOwner {
  /** Joined by commas, which no name has. */
  readonly providers: string
}

/**
 * The rows of a pool. The ORDER BY makes the database use the one index with this order. Otherwise it may read
 * the whole workspace and drop the other providers, which it estimates as cheap where workspaces are small on average.
 */
const membersOf = (
  sql: SqlClient.SqlClient,
  { account_id, provider, workspace_id }: Place,
  columns: ReadonlyArray<string>
) => sql`
  SELECT ${sql.csv(columns)}, xmin FROM credentials
  WHERE account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider}
  ORDER BY sort_order OFFSET 0`

/**
 * The version of a pool: a hash of the set of its rows' versions. A counter would serialise creates, and the
 * highest number misses a transaction that commits late. The set differs after every commit, whatever their order.
 */
const versionOf = (sql: SqlClient.SqlClient, place: Place) => sql`
  SELECT count(*) || '.' || coalesce(
    sum(hashtextextended(member.id || ' ' || member.xmin || coalesce(' ' || parked.xmin, ''), 0)), 0
  ) AS version
  FROM (${membersOf(sql, place, ["id"])}) AS member
  LEFT JOIN credential_parkings AS parked
  ON parked.account_id = ${place.account_id} AND parked.credential_id = member.id`

const parkings = (sql: SqlClient.SqlClient, { account_id }: Place) => sql`
  SELECT json_agg(json_build_object(
    'model', parked.model, 'key_version', parked.key_version, 'epoch', parked.epoch, 'cause', parked.cause,
    'strikes', parked.strikes, 'remaining', extract(epoch FROM parked.until - now()) * 1000
  ))::text AS parkings FROM credential_parkings AS parked
  WHERE parked.account_id = ${account_id} AND parked.credential_id = member.id`

// Rows as the driver reads them: the database's types and constraints guarantee the form of every field.

type Member = Stored &
  SealedKey & {
    readonly account_id: AccountId
    readonly key_version: number
    readonly row: string
    readonly parkings: string | null
  }

/** A member with the version of its pool; an empty pool is one row without a credential. */
type Loaded = { readonly version: string } & (Member | { readonly id: null })

const isMember = (row: Loaded): row is Loaded & Member => row.id !== null

const lists = ["allowed_api_key_hashes", "allowed_models", "allowed_user_ids"]

/** A column of `member`. The driver reads no array of other bounds, which direct SQL can store: it must not fail the pool. */
const columnOf = (sql: SqlClient.SqlClient, column: string) => {
  const value = sql.literal(`member.${column}`)
  return lists.includes(column)
    ? sql`CASE WHEN array_ndims(${value}) > 1 OR array_lower(${value}, 1) <> 1 THEN ARRAY[${value}::text] ELSE ${value} END AS ${sql(column)}`
    : value
}

/** A time that only direct SQL can store must not fail the pool; all that it decides is the order. */
const finite = (time: Date): Date => (Number.isFinite(Number(time)) ? time : new Date(8.64e15))

const rowOf = (loaded: Loaded & Member): PoolRow => ({
  credential: credentialOf({ ...loaded, created_at: finite(loaded.created_at) }),
  sealed: { kek_id: loaded.kek_id, wrapped_dek: loaded.wrapped_dek, sealed: loaded.sealed },
  key_version: loaded.key_version,
  row: loaded.row,
  parkings: loaded.parkings === null ? [] : (JSON.parse(loaded.parkings) as ReadonlyArray<StoredParking>)
})

export const layer = Layer.effect(
  CredentialPools,
  Effect.gen(function* () {
    const { reads } = yield* Database
    const { ask, sql } = reads
    const versions = makeLookUp<Asked, { readonly versions: ReadonlyArray<string> }, ReadonlyArray<string>>(reads, {
      operation: "pools.versions",
      by: { account_id: "uuid", workspace_id: "uuid", providers: "text" },
      select: ({ account_id, providers, workspace_id }) => sql`
        SELECT array_agg(pool.version ORDER BY asked.n) AS versions
        FROM unnest(string_to_array(${providers}, ',')) WITH ORDINALITY AS asked (provider, n)
        CROSS JOIN LATERAL (${versionOf(sql, { account_id, workspace_id, provider: sql`asked.provider` })}) AS pool
        WHERE EXISTS (
          SELECT FROM workspaces WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL
        ) HAVING count(*) > 0`,
      read: ({ versions }) => versions
    })

    return {
      versions: (owner, providers) => versions({ ...owner, providers: providers.join() }),
      load: ({ account_id, workspace_id }, provider) => {
        const columns = ["account_id", ...sealedColumns, "key_version"]
        const place = { account_id, workspace_id, provider }
        const rows = sql<Loaded>`
          SELECT pool.version, ${sql.csv(columns.map((column) => columnOf(sql, column)))}, member.xmin::text AS row, parked.parkings
          FROM workspaces
          CROSS JOIN LATERAL (${versionOf(sql, place)}) AS pool
          LEFT JOIN LATERAL (${membersOf(sql, place, columns)}) AS member ON true
          LEFT JOIN LATERAL (${parkings(sql, place)}) AS parked ON true
          WHERE workspaces.account_id = ${account_id} AND workspaces.id = ${workspace_id}
          AND workspaces.deleted_at IS NULL`
        return Effect.map(ask(rows, "pools.load"), (found) =>
          Option.map(Option.fromUndefinedOr(found[0]), ({ version }) => ({
            version,
            rows: found.filter(isMember).map(rowOf)
          }))
        )
      }
    }
  })
)
