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
import { compileOnce, tableOf } from "../connection/statements.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { listBytes, credentialColumns, credentialOf, type CredentialRow } from "../rows/credentialRows.ts"
import { isMarkedAsLeaked } from "../rows/parkingRows.ts"

/** A row of the page; an empty page is one row without a credential. Lists are null if they exceed `max_bytes`. */
type Row = { readonly total_count: number } & (
  ({ readonly bytes: number } & CredentialRow) | { readonly bytes: null; readonly id: null }
)

const isStored = (row: Row): row is Row & CredentialRow => row.id !== null

/** SQL for the state of a row of `credentials`, like the domain's `stateOf`, assuming that its key can be opened. */
const stateOf = (sql: SqlClient.SqlClient, account_id: AccountId) => sql`
  CASE
    WHEN ${isMarkedAsLeaked(sql, sql`${account_id}`, sql`credentials.id`, sql`credentials.key_version`)} THEN 'leaked'
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

/**
 * The parameters of a page: `offset` and `limit` choose its rows; it has lists only if they have at most `max_bytes`
 * together.
 */
const paging = {
  account_id: "uuid",
  workspace_id: "uuid",
  limit: "integer",
  offset: "integer",
  max_bytes: "integer"
} as const
type Paging = keyof typeof paging
const pagingNames = Object.keys(paging) as ReadonlyArray<Paging>
type PageRequest = Pick<CredentialPage, "limit" | "offset" | "workspace_id"> & {
  readonly account_id: AccountId
  readonly max_bytes: number
}

/** More than the bytes of any page's lists. */
const unbounded = 2_147_483_647

/** The greatest offset of pages that share a statement: a long skip would delay the others. */
const maxSharedOffset = 1000

/** The usual bytes of a row without its lists. */
const rowBytes = 1024

/** The page that rows make up, and the bytes of its lists, whether they were read or not. */
const pageOf = (rows: ReadonlyArray<Row>) => ({
  bytes: rows[0]?.bytes ?? 0,
  listed: { credentials: rows.filter(isStored).map(credentialOf), total_count: rows[0]?.total_count ?? 0 }
})

/**
 * Lists in one statement, so that page and count are of one snapshot. The count is the sum of `members` in `pools`,
 * unless there are filters besides the provider. The index `credentials_list` finds the first row after the offset.
 */
export const listCredentials = ({ ask, batch, sql }: ConnectionPool) => {
  const select = (
    valueOf: (name: Paging) => Statement.Fragment,
    provider?: string,
    filters: ReadonlyArray<Statement.Fragment> = []
  ) => {
    const isInWorkspace = sql.and([
      sql`account_id = ${valueOf("account_id")}`,
      sql`workspace_id = ${valueOf("workspace_id")}`,
      ...(provider === undefined ? [] : [sql`provider = ${provider}`])
    ])
    const isListed = sql.and([isInWorkspace, ...filters])
    const counted =
      filters.length === 0
        ? sql`SELECT coalesce(sum(members), 0)::int AS total_count FROM pools WHERE ${isInWorkspace}`
        : sql`SELECT count(*)::int AS total_count FROM credentials WHERE ${isListed}`
    const values = credentialColumns.map((column) => {
      const value = sql`${sql(column)}`
      return isList(column)
        ? sql`CASE WHEN sum(list_bytes) OVER () <= ${valueOf("max_bytes")} THEN ${value} END AS ${value}`
        : value
    })
    return sql`
      SELECT total_count, page.* FROM (${counted}) AS counted LEFT JOIN (
        SELECT (sum(list_bytes) OVER ())::integer AS bytes, ${sql.csv(values)} FROM (
          SELECT ${sql.csv(credentialColumns)}, ${listBytes(sql)} AS list_bytes FROM credentials
          WHERE ${isListed} AND (created_at, id) >= (
            SELECT created_at, id FROM credentials WHERE ${isListed} ORDER BY created_at, id LIMIT 1 OFFSET ${valueOf("offset")}
          ) ORDER BY created_at, id LIMIT ${valueOf("limit")}
        ) AS sized
      ) AS page ON true`
  }
  const one = compileOnce(
    sql,
    pagingNames,
    (parameters) =>
      sql<Row>`${select((name) => sql`${parameters[name]}::${sql.literal(paging[name])}`)} ORDER BY created_at, id`
  )
  const many = compileOnce(
    sql,
    pagingNames,
    (parameters) => sql<Row & { readonly n: number }>`
      SELECT wanted.n::int AS n, listed.* FROM ${tableOf(sql, "wanted", paging, (name) => parameters[name])},
      LATERAL (${select((name) => sql`wanted.${sql(name)}`)}) AS listed ORDER BY n, created_at, id`
  )
  const readInBatch = batch<PageRequest, ReturnType<typeof pageOf>>({
    operation: "credentials.list",
    one: (request) => Effect.map(one(request), pageOf),
    many: (requests) => {
      const parameters = Record.map(paging, (_, name) => requests.map((request) => request[name]))
      return Effect.map(many(parameters), (rows) => {
        const rowsOf = Map.groupBy(rows, ({ n }) => n)
        return requests.map((_, index) => pageOf(rowsOf.get(index + 1) ?? []))
      })
    },
    sizeOf: ({ limit, max_bytes }) => max_bytes + limit * rowBytes
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
    const readAlone = (request: PageRequest) => {
      const rows = sql<Row>`${select((name) => sql`${request[name]}`, provider, filters)} ORDER BY created_at, id`
      return Effect.map(ask(rows, "credentials.list"), pageOf)
    }
    /** Reads again, with more memory, if the lists exceed `maxBytes`. */
    const list = (maxBytes: number, read: typeof readAlone): Answer<Listed> =>
      Effect.flatMap(read({ account_id, max_bytes: maxBytes, ...page }), ({ bytes, listed }) =>
        memory !== undefined && bytes > maxBytes
          ? Effect.andThen(memory.admit(bytes), list(bytes, readAlone))
          : Effect.succeed(listed)
      )
    return list(
      memory?.reserved ?? unbounded,
      isFiltered || memory === undefined || page.offset > maxSharedOffset ? readAlone : readInBatch
    )
  }
}

/** Scans in the order of the index `credentials_list`, so that later pages cost no more than the first. */
export const scanCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { after, limit, provider, state, workspace_id }: CredentialScan) => {
    const rows = sql<CredentialRow & Pick<ScannedCredential, "state">>`
      SELECT account_id, ${sql.csv(credentialColumns)}, ${stateOf(sql, account_id)} AS state FROM credentials WHERE ${sql.and(
        [
          sql`account_id = ${account_id}`,
          ...(workspace_id === undefined ? [] : [sql`workspace_id = ${workspace_id}`]),
          ...(provider === undefined ? [] : [sql`provider = ${provider}`]),
          ...(state === undefined ? [] : [sql`${stateOf(sql, account_id)} = ${state}`]),
          ...(after === undefined
            ? []
            : [
                sql`(workspace_id, created_at, id) > (${after.workspace_id}::uuid, ${DateTime.toDate(after.created_at)}::timestamptz, ${after.id}::uuid)`
              ])
        ]
      )}
      ORDER BY workspace_id, created_at, id LIMIT ${limit}`
    return Effect.map(ask(rows, "credentials.scan"), (scanned) =>
      scanned.map((row) => ({ ...credentialOf(row), state: row.state }))
    )
  }
