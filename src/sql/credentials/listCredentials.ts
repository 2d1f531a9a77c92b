import { DateTime, Effect, Record } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { listNames } from "../../domain/Credential.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { keyFailures } from "../../domain/routing/LastUse.ts"
import type {
  CredentialPage,
  CredentialRepository,
  CredentialScan,
  ScannedCredential
} from "../../port/CredentialRepository.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import { compileOnce } from "../connection/statements.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { bytesOf, columns, credentialOf, type Stored } from "../rows/credentialRows.ts"
import { isMarked } from "../rows/parkingRows.ts"

/** A row of the page, or one without a credential if it is empty. Lists of more bytes than may be read are null. */
type Row = { readonly total_count: number } & (
  ({ readonly bytes: number } & Stored) | { readonly bytes: null; readonly id: null }
)

const isStored = (row: Row): row is Row & Stored => row.id !== null

/** The state of a row of `credentials` whose key opens, as the domain's `stateOf` has it. */
const stateOf = (sql: SqlClient.SqlClient, account_id: AccountId) => sql`
  CASE
    WHEN ${isMarked(sql, sql`${account_id}`, sql`credentials.id`, sql`credentials.key_version`)} THEN 'leaked'
    WHEN disabled THEN 'disabled'
    WHEN EXISTS (
      SELECT FROM credential_parkings AS parked
      WHERE parked.account_id = ${account_id} AND parked.credential_id = credentials.id
      AND parked.key_version = credentials.key_version AND parked.until > now()
    ) THEN 'parked'
    WHEN EXISTS (
      SELECT FROM credential_use AS used
      WHERE used.account_id = ${account_id} AND used.credential_id = credentials.id
      AND used.last_failed_version = credentials.key_version AND ${sql.in("used.last_failure", keyFailures)}
      AND coalesce(used.last_succeeded_at, '-infinity') < used.last_failed_at
    ) THEN 'failing'
    ELSE 'active'
  END`

type Listed = Effect.Success<ReturnType<CredentialRepository["Service"]["list"]>>

const isList = (column: string) => (listNames as ReadonlyArray<string>).includes(column)

/** Which page, and how many bytes its lists may have. */
const paging = {
  account_id: "uuid",
  workspace_id: "uuid",
  limit: "integer",
  offset: "integer",
  within: "integer"
} as const
type Paging = keyof typeof paging
const pagingNames = Object.keys(paging) as ReadonlyArray<Paging>
type Place = Pick<CredentialPage, "limit" | "offset" | "workspace_id"> & {
  readonly account_id: AccountId
  readonly within: number
}

/** Beyond the lists of any page: the largest integer. */
const unbounded = 2_147_483_647

/** How far lists skip that share a statement: one that takes long would delay the others. */
const shallow = 1000

/** How many bytes the rest of a row has in most pages. */
const rowBytes = 1024

const pageOf = (rows: ReadonlyArray<Row>) => ({
  bytes: rows[0]?.bytes ?? 0,
  listed: { credentials: rows.filter(isStored).map(credentialOf), total_count: rows[0]?.total_count ?? 0 }
})

/**
 * Lists with one statement, so page and count come from one snapshot. The count is the sum of what `pools` keep, unless a filter
 * selects by more than the provider. The page begins at the key that the index `credentials_list` has behind the offset.
 */
export const listCredentials = ({ ask, batch, sql }: ConnectionPool) => {
  const select = (
    valueOf: (name: Paging) => Statement.Fragment,
    provider?: string,
    filters: ReadonlyArray<Statement.Fragment> = []
  ) => {
    const ofWorkspace = sql.and([
      sql`account_id = ${valueOf("account_id")}`,
      sql`workspace_id = ${valueOf("workspace_id")}`,
      ...(provider === undefined ? [] : [sql`provider = ${provider}`])
    ])
    const listed = sql.and([ofWorkspace, ...filters])
    const counted =
      filters.length === 0
        ? sql`SELECT coalesce(sum(members), 0)::int AS total_count FROM pools WHERE ${ofWorkspace}`
        : sql`SELECT count(*)::int AS total_count FROM credentials WHERE ${listed}`
    const read = columns.map((column) => {
      const value = sql`${sql(column)}`
      return isList(column)
        ? sql`CASE WHEN sum(held) OVER () <= ${valueOf("within")} THEN ${value} END AS ${value}`
        : value
    })
    return sql`
      SELECT total_count, read.* FROM (${counted}) AS counted LEFT JOIN (
        SELECT (sum(held) OVER ())::integer AS bytes, ${sql.csv(read)} FROM (
          SELECT ${sql.csv(columns)}, ${bytesOf(sql)} AS held FROM credentials
          WHERE ${listed} AND (created_at, id) >= (
            SELECT created_at, id FROM credentials WHERE ${listed} ORDER BY created_at, id LIMIT 1 OFFSET ${valueOf("offset")}
          ) ORDER BY created_at, id LIMIT ${valueOf("limit")}
        ) AS page
      ) AS read ON true`
  }
  const one = compileOnce(
    sql,
    pagingNames,
    (given) => sql<Row>`${select((name) => sql`${given[name]}::${sql.literal(paging[name])}`)} ORDER BY created_at, id`
  )
  const many = compileOnce(
    sql,
    pagingNames,
    (given) => sql<Row & { readonly n: number }>`
      SELECT wanted.n::int AS n, found.* FROM unnest(
        ${sql.csv(pagingNames.map((name) => sql`${given[name]}::${sql.literal(paging[name])}[]`))}
      ) WITH ORDINALITY AS wanted (${sql.csv(pagingNames.map((name) => sql`${sql(name)}`))}, n),
      LATERAL (${select((name) => sql`wanted.${sql(name)}`)}) AS found ORDER BY n, created_at, id`
  )
  const share = batch<Place, ReturnType<typeof pageOf>>({
    operation: "credentials.list",
    one: (place) => Effect.map(one(place), pageOf),
    many: (places) => {
      const given = Record.map(paging, (_, name) => places.map((place) => place[name]))
      return Effect.map(many(given), (rows) => {
        const found = Map.groupBy(rows, ({ n }) => n)
        return places.map((_, index) => pageOf(found.get(index + 1) ?? []))
      })
    },
    sizeOf: ({ limit, within }) => within + limit * rowBytes
  })

  return (account_id: AccountId, { memory, provider, q, state, ...page }: CredentialPage): Answer<Listed> => {
    const filters = [
      ...(state === undefined ? [] : [sql`${stateOf(sql, account_id)} = ${state}`]),
      ...(q === undefined
        ? []
        : [
            sql`(starts_with(lower(name), lower(${q})) OR starts_with(lower(label), lower(${q}))
              OR right(lower(label), char_length(${q})) = lower(${q}))`
          ])
    ]
    const isFiltered = filters.length > 0 || provider !== undefined
    const alone = (place: Place) => {
      const rows = isFiltered
        ? sql<Row>`${select((name) => sql`${place[name]}`, provider, filters)} ORDER BY created_at, id`
        : one(place)
      return Effect.map(ask(rows, "credentials.list"), pageOf)
    }
    /** Reads again if the lists have become larger meanwhile. */
    const read = (within: number, ask: typeof alone): Answer<Listed> =>
      Effect.flatMap(ask({ account_id, within, ...page }), ({ bytes, listed }) =>
        memory !== undefined && bytes > within
          ? Effect.andThen(memory.admit(bytes), read(bytes, alone))
          : Effect.succeed(listed)
      )
    return read(
      memory?.within ?? unbounded,
      isFiltered || memory === undefined || page.offset > shallow ? alone : share
    )
  }
}

/** Scans in the order of the index `credentials_list`, so a part costs the same wherever it begins. */
export const scanCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { after, limit, provider, state, workspace_id }: CredentialScan) => {
    const rows = sql<Stored & Pick<ScannedCredential, "state">>`
      SELECT account_id, ${sql.csv(columns)}, ${stateOf(sql, account_id)} AS state FROM credentials WHERE ${sql.and([
        sql`account_id = ${account_id}`,
        ...(workspace_id === undefined ? [] : [sql`workspace_id = ${workspace_id}`]),
        ...(provider === undefined ? [] : [sql`provider = ${provider}`]),
        ...(state === undefined ? [] : [sql`${stateOf(sql, account_id)} = ${state}`]),
        ...(after === undefined
          ? []
          : [
              sql`(workspace_id, created_at, id) > (${after.workspace_id}::uuid, ${DateTime.toDate(after.created_at)}::timestamptz, ${after.id}::uuid)`
            ])
      ])}
      ORDER BY workspace_id, created_at, id LIMIT ${limit}`
    return Effect.map(ask(rows, "credentials.scan"), (found) =>
      found.map((row) => ({ ...credentialOf(row), state: row.state }))
    )
  }
