import { Effect, Layer, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { AccountId } from "../domain/Identifiers.ts"
import type { Provider } from "../domain/Provider.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import { CredentialPools, type PoolOwner, type PoolRow, type StoredParking } from "../port/CredentialPools.ts"
import { Database } from "./connection/Database.ts"
import { credentialOf, type Place, sealedColumns, type Stored } from "./credentialRows.ts"

interface Asked extends PoolOwner {
  readonly providers: ReadonlyArray<Provider>
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

interface Version {
  /** The number of the pool among those asked for, from 1. */
  readonly n: number
  readonly live: boolean
  readonly version: string
}

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

const rowOf = ({
  kek_id,
  key_version,
  parkings,
  row,
  sealed,
  version: _version,
  wrapped_dek,
  ...stored
}: Loaded & Member): PoolRow => ({
  credential: credentialOf({ ...stored, created_at: finite(stored.created_at) }),
  sealed: { kek_id, wrapped_dek, sealed },
  key_version,
  row,
  parkings: parkings === null ? [] : (JSON.parse(parkings) as ReadonlyArray<StoredParking>)
})

export const layer = Layer.effect(
  CredentialPools,
  Effect.gen(function* () {
    const { ask, batch, sql } = (yield* Database).reads

    /** Of pools `wanted`. The workspace is a subquery: with a join, a generic plan would read all workspaces of a small table. */
    const versionsAt = (place: Place, wanted: Statement.Fragment) => sql<Version>`
      SELECT wanted.n::int AS n, (
        SELECT id FROM workspaces
        WHERE account_id = ${place.account_id} AND id = ${place.workspace_id} AND deleted_at IS NULL
      ) IS NOT NULL AS live, pool.version
      FROM ${wanted} CROSS JOIN LATERAL (${versionOf(sql, place)}) AS pool`

    /** Names the account and the workspace as values. */
    const askOne = ({ account_id, providers, workspace_id }: Asked) =>
      versionsAt(
        { account_id, workspace_id, provider: sql`wanted.provider` },
        sql`unnest(${providers}::text[]) WITH ORDINALITY AS wanted (provider, n)`
      )
    const askMany = (asked: ReadonlyArray<Asked>) => {
      const wanted = asked.flatMap(({ account_id, providers, workspace_id }) =>
        providers.map((provider) => ({ account_id, workspace_id, provider }))
      )
      return versionsAt(
        {
          account_id: sql`wanted.account_id`,
          workspace_id: sql`wanted.workspace_id`,
          provider: sql`wanted.provider`
        },
        sql`unnest(
          ${wanted.map(({ account_id }) => account_id)}::uuid[],
          ${wanted.map(({ workspace_id }) => workspace_id)}::uuid[],
          ${wanted.map(({ provider }) => provider)}::text[]
        ) WITH ORDINALITY AS wanted (account_id, workspace_id, provider, n)`
      )
    }
    const versionsOf = (asked: ReadonlyArray<Asked>, found: Statement.Statement<Version>) =>
      Effect.map(found, (rows) => {
        const versions = Array<string | undefined>(asked.reduce((sum, { providers }) => sum + providers.length, 0))
        for (const { live, n, version } of rows) versions[n - 1] = live ? version : undefined
        let next = 0
        return asked.map(({ providers }) => {
          const own = versions.slice(next, (next += providers.length))
          const live = own.filter((version) => version !== undefined)
          return live.length < own.length ? Option.none() : Option.some(live)
        })
      })
    const versions = batch<Asked, Option.Option<ReadonlyArray<string>>>({
      operation: "pools.versions",
      one: (asked) => Effect.map(versionsOf([asked], askOne(asked)), ([found = Option.none()]) => found),
      many: (asked) => versionsOf(asked, askMany(asked))
    })

    return {
      versions: ({ account_id, workspace_id }, providers) => versions({ account_id, workspace_id, providers }),
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
