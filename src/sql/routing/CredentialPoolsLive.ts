import { Effect, Layer, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { listNames } from "../../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import type { ApiKeyRole } from "../../domain/Principal.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import {
  CredentialPools,
  type PoolOwner,
  type PoolRow,
  type PoolSize,
  type PoolState,
  type StoredParking
} from "../../port/CredentialPools.ts"
import { Database } from "../connection/Database.ts"
import type { Query } from "../connection/Query.ts"
import { makeLookUp } from "../connection/statements.ts"
import { credentialOf, listElements, sealedColumns, type CredentialRow } from "../rows/credentialRows.ts"

/** The state of `pool` as text for `stateOf`. */
const stateText = (sql: SqlClient.SqlClient) =>
  sql`concat_ws(' ', coalesce(pool.version, 0), coalesce(pool.health, 0), coalesce(pool.members, 0), coalesce(pool.bytes, 0))`

const stateOf = (text: string): PoolState => {
  const [version = "", health = "", members, bytes] = text.split(" ")
  return { version, health, members: Number(members), bytes: Number(bytes) }
}

/**
 * The members of a pool. ORDER BY makes PostgreSQL use the index with this order. Otherwise it may read the whole
 * workspace and discard the other providers, which seems cheap to it if workspaces are small on average.
 */
const membersOf = (
  sql: SqlClient.SqlClient,
  { account_id, workspace_id }: PoolOwner,
  provider: Provider,
  columns: ReadonlyArray<string>
) => sql`
  SELECT ${sql.csv(columns)}, xmin FROM credentials
  WHERE account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider}
  ORDER BY sort_order OFFSET 0`

/** A FROM clause with the parkings of the current keys of the members of a pool, as `parked`. */
const parkedIn = (sql: SqlClient.SqlClient, owner: PoolOwner, provider: Provider) => sql`
  FROM (${membersOf(sql, owner, provider, ["id", "key_version"])}) AS keyed
  JOIN credential_parkings AS parked ON parked.account_id = ${owner.account_id} AND parked.credential_id = keyed.id
  AND parked.key_version = keyed.key_version`

/** How many bytes a parking takes in memory besides its model: 190 measured. */
const parkingBytes = 200

/** The parkings of a pool: a row for each key, so that no message of the database is too long. */
const parkingsOf = (sql: SqlClient.SqlClient, owner: PoolOwner, provider: Provider) => sql`
  SELECT parked.credential_id AS parked_id, parked.key_version AS parked_version, array_agg(parked.model) AS models,
    array_agg(parked.epoch) AS epochs, array_agg(parked.cause) AS causes, array_agg(parked.strikes) AS strikes,
    array_agg((extract(epoch FROM parked.until - now()) * 1000)::float8) AS remaining
  ${parkedIn(sql, owner, provider)}
  GROUP BY parked.credential_id, parked.key_version`

/** The parkings of a key, a list for each of their columns. */
interface ParkedKey {
  readonly parked_id: CredentialId
  readonly parked_version: number
  readonly models: ReadonlyArray<string>
  readonly epochs: ReadonlyArray<number>
  readonly causes: ReadonlyArray<StoredParking["cause"]>
  readonly strikes: ReadonlyArray<number>
  readonly remaining: ReadonlyArray<number | null>
}

type Member = CredentialRow & SealedKey & { readonly key_version: number; readonly row: string }

/** The state of the pool with a member, a key's parkings or both. If there are neither, one row has the state alone. */
type Loaded = { readonly state: string } & (Member | { readonly id: null }) & (ParkedKey | { readonly parked_id: null })

const parkingsIn = ({ causes, epochs, models, parked_version, remaining, strikes }: ParkedKey) =>
  models.map((model, n): StoredParking => ({
    model,
    key_version: parked_version,
    epoch: epochs[n] as number,
    cause: causes[n] as StoredParking["cause"],
    strikes: strikes[n] as number,
    remaining: remaining[n] as number | null
  }))

const isParked = (row: Loaded): row is Loaded & ParkedKey => row.parked_id !== null

const isMember = (row: Loaded): row is Loaded & Member => row.id !== null

/**
 * A column of `member`. Replaces an array that the driver cannot read with an array of its text. Only direct SQL can
 * store such an array; it must not fail the pool.
 */
const columnOf = (sql: SqlClient.SqlClient, column: string) => {
  const value = sql.literal(`member.${column}`)
  return listNames.some((list) => list === column)
    ? sql`CASE WHEN array_ndims(${value}) > 1 OR array_lower(${value}, 1) <> 1 THEN ARRAY[${value}::text] ELSE ${value} END AS ${sql(column)}`
    : value
}

/** Replaces an infinite time, which only direct SQL can store: it must not fail the pool. Times only affect order. */
const finite = (time: Date): Date => (Number.isFinite(Number(time)) ? time : new Date(8.64e15))

const rowOf = (member: Member): PoolRow => ({
  credential: credentialOf({ ...member, created_at: finite(member.created_at) }),
  sealed: { kek_id: member.kek_id, wrapped_dek: member.wrapped_dek, sealed: member.sealed },
  key_version: member.key_version,
  row: member.row
})

/** The parts of a SELECT that finds a workspace. */
interface Source {
  readonly account_id: Statement.Fragment
  readonly columns: Statement.Fragment
  readonly from: Statement.Fragment
  readonly where: Statement.Fragment
}

interface WorkspaceVersions {
  readonly id: WorkspaceId
  readonly states: ReadonlyArray<string>
}

interface ApiKeyOwner {
  readonly account_id: AccountId
  readonly role: ApiKeyRole
}

interface ApiKeyVersions extends ApiKeyOwner {
  /** Null if the account of the API key has no such workspace. */
  readonly id: WorkspaceId | null
  readonly states: ReadonlyArray<string>
}

const versionsOf = ({ id, states }: WorkspaceVersions) => ({ workspace_id: id, pools: states.map(stateOf) })

export const layer = Layer.effect(
  CredentialPools,
  Effect.gen(function* () {
    const { reads } = yield* Database
    const { ask, askForPlan, distributed, sql } = reads

    /**
     * Makes a look-up of a workspace's pool states; `providers` are joined by commas. The first OFFSET 0 hides their
     * number, which would make PostgreSQL plan every execution anew; the second makes it look up each pool by index.
     */
    const makeFindVersions = <Wanted extends { readonly providers: string }, Row extends object>(
      by: Readonly<Record<keyof Wanted & string, "uuid" | "text">>,
      sourceOf: (values: Readonly<Record<keyof Wanted & string, Statement.Fragment>>) => Source
    ) =>
      makeLookUp<Wanted, Row, Row>(reads, {
        operation: "pools.versions",
        by,
        select: (values) => {
          const { account_id, columns, from, where } = sourceOf(values)
          return sql<Row>`
            SELECT ${columns}, ARRAY(
              SELECT ${stateText(sql)} FROM (SELECT string_to_array(${values.providers}, ',') OFFSET 0) AS input (providers)
              CROSS JOIN unnest(input.providers) WITH ORDINALITY AS requested (provider, n)
              LEFT JOIN LATERAL (
                SELECT version, health, members, bytes FROM pools
                WHERE account_id = ${account_id} AND workspace_id = workspaces.id AND provider = requested.provider OFFSET 0
              ) AS pool ON true
              ORDER BY requested.n
            ) AS states
            FROM ${from}
            WHERE ${where}`
        },
        read: (row) => row
      })
    const inAccount = (account_id: Statement.Fragment, isWanted: Statement.Fragment): Source => ({
      account_id,
      columns: sql`workspaces.id`,
      from: sql`workspaces`,
      where: sql`workspaces.account_id = ${account_id} AND ${isWanted} AND workspaces.deleted_at IS NULL`
    })
    const findNamed = makeFindVersions<PoolOwner & { providers: string }, WorkspaceVersions>(
      { account_id: "uuid", workspace_id: "uuid", providers: "text" },
      ({ account_id, workspace_id }) => inAccount(account_id, sql`workspaces.id = ${workspace_id}`)
    )
    const findDefault = makeFindVersions<Pick<PoolOwner, "account_id"> & { providers: string }, WorkspaceVersions>(
      { account_id: "uuid", providers: "text" },
      ({ account_id }) => inAccount(account_id, sql`workspaces.is_default`)
    )
    /** Looks up an API key and the versions in one statement; `workspace_id` is empty for the default workspace. */
    const findByKey = makeFindVersions<
      { api_key_hash: ApiKeyHash; workspace_id: string } & { providers: string },
      ApiKeyVersions
    >({ api_key_hash: "text", workspace_id: "text", providers: "text" }, ({ api_key_hash, workspace_id }) => ({
      account_id: sql`api_keys.account_id`,
      columns: sql`api_keys.account_id, api_keys.role, workspaces.id`,
      from: sql`api_keys LEFT JOIN workspaces ON workspaces.account_id = api_keys.account_id AND deleted_at IS NULL
          AND CASE WHEN ${workspace_id} = '' THEN is_default ELSE workspaces.id::text = ${workspace_id} END`,
      where: sql`hash = decode(${api_key_hash}, 'hex') AND revoked_at IS NULL`
    }))
    /** On Citus, looks up the owner first: given the account as a value, one node runs the statement of `versions`. */
    const findOwner = makeLookUp<{ api_key_hash: ApiKeyHash }, ApiKeyOwner, ApiKeyOwner>(reads, {
      operation: "api_keys.find",
      by: { api_key_hash: "text" },
      select: ({ api_key_hash }) =>
        sql`SELECT account_id, role FROM api_keys WHERE hash = decode(${api_key_hash}, 'hex') AND revoked_at IS NULL`,
      read: ({ account_id, role }) => ({ account_id, role })
    })

    const versions: CredentialPools["Service"]["versions"] = ({ account_id, workspace_id }, providerList) => {
      const providers = providerList.join()
      const workspaceVersions =
        workspace_id === undefined
          ? findDefault({ account_id, providers })
          : findNamed({ account_id, workspace_id, providers })
      return Effect.map(workspaceVersions, Option.map(versionsOf))
    }

    const time = sql<{ time: number }>`SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS time`

    return {
      time: Effect.map(ask(time, "pools.time"), ([row]) => row?.time ?? Number.NaN),
      versions,
      versionsOfKey: ({ api_key_hash, workspace_id }, providers) =>
        distributed
          ? Effect.flatMap(
              findOwner({ api_key_hash }),
              Option.match({
                onNone: () => Effect.succeedNone,
                onSome: ({ account_id, role }) =>
                  Effect.map(versions({ account_id, ...(workspace_id && { workspace_id }) }, providers), (versions) =>
                    Option.some({ account_id, role, versions })
                  )
              })
            )
          : Effect.map(
              findByKey({ api_key_hash, workspace_id: workspace_id ?? "", providers: providers.join() }),
              Option.map(({ account_id, id, role, states }) => ({
                account_id,
                role,
                versions: id === null ? Option.none() : Option.some(versionsOf({ id, states }))
              }))
            ),
      load: (owner, provider, knownVersion, admit = () => Effect.void) => {
        const ask = <A>(query: Query<A>) => askForPlan(query, "pools.load", owner.account_id)
        const parkings = sql`
          SELECT coalesce(sum(${sql.literal(String(parkingBytes))} + octet_length(parked.model)), 0)::float8 AS parkings
          ${parkedIn(sql, owner, provider)}`
        const elements =
          knownVersion === undefined
            ? sql`SELECT coalesce(sum(${listElements(sql)}), 0)::float8 AS elements
              FROM (${membersOf(sql, owner, provider, listNames)}) AS listed`
            : sql`SELECT 0::float8 AS elements`
        const size = sql<PoolSize>`SELECT * FROM (${parkings}) AS parked, (${elements}) AS listed`
        /** Takes the memory for the members and parkings. */
        const admitted = Effect.flatMap(ask(size), ([row = { parkings: 0, elements: 0 }]) => admit(row))
        const columns = [...sealedColumns, "key_version"]
        /** The pool's state, members and parkings; no members if the pool still has the known version. */
        const rows = sql<Loaded>`
          SELECT ${stateText(sql)} AS state, ${sql.csv(columns.map((column) => columnOf(sql, column)))},
            member.xmin::text AS row, parked_id, parked_version, models, epochs, causes, strikes, remaining
          FROM workspaces
          LEFT JOIN pools AS pool
          ON pool.account_id = ${owner.account_id} AND pool.workspace_id = workspaces.id AND pool.provider = ${provider}
          LEFT JOIN LATERAL (
            SELECT * FROM (
              SELECT * FROM (${membersOf(sql, owner, provider, columns)}) AS ordered
              WHERE coalesce(pool.version, 0)::text IS DISTINCT FROM ${knownVersion ?? null}::text
            ) AS changed FULL JOIN (${parkingsOf(sql, owner, provider)}) AS parked ON parked_id = id
          ) AS member ON true
          WHERE workspaces.account_id = ${owner.account_id} AND workspaces.id = ${owner.workspace_id}
          AND workspaces.deleted_at IS NULL`
        return Effect.map(Effect.andThen(admitted, ask(rows)), (loaded) =>
          Option.map(Option.fromUndefinedOr(loaded[0]), (first) => {
            const state = stateOf(first.state)
            return {
              ...state,
              parkings: new Map(loaded.filter(isParked).map((row) => [row.parked_id, parkingsIn(row)])),
              rows: state.version === knownVersion ? undefined : loaded.filter(isMember).map(rowOf)
            }
          })
        )
      }
    }
  })
)
