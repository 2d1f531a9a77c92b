import { Effect, Layer, Option } from "effect"
import { type AccountId, ApiKeyHash, type CredentialId, type WorkspaceId } from "../domain/Identifiers.ts"
import { ApiKeys, type FoundApiKey } from "../port/ApiKeys.ts"
import { compileOnce } from "./connection/compileOnce.ts"
import { Database } from "./connection/Database.ts"
import { columns, credentialOf, type Stored } from "./credentialRows.ts"

const bytes = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

/** A key with the default workspace of its account. */
interface KeyRow {
  readonly key_hash: string
  readonly key_account_id: AccountId
  readonly management: boolean
  /** Undefined where accounts are spread over nodes: their look-up reads the API key alone. */
  readonly default_workspace_id?: WorkspaceId | null
}

const withWorkspace = ({ key_account_id: account_id, management, ...home }: KeyRow): FoundApiKey => ({
  account_id,
  management,
  prefetched: { account_id, ...home }
})

interface Reading {
  readonly hash: ApiKeyHash
  readonly id: CredentialId
}

/** A key with the credential that it reads; the columns are null if its account has no such credential. */
type ReadingRow = Pick<KeyRow, "key_account_id" | "management"> & { readonly n: number } & (
    Stored | { readonly id: null }
  )

const withCredential = (id: CredentialId, row: ReadingRow): FoundApiKey => {
  const { key_account_id: account_id, management, n: _n, ...stored } = row
  const found = stored.id === null ? Option.none() : Option.some(credentialOf(stored))
  return { account_id, management, prefetched: { account_id, credential: { id, found } } }
}

/** Reads the rows that the request needs next together with its key: a get takes one round trip, a create two. */
export const layer = Layer.effect(
  ApiKeys,
  Effect.gen(function* () {
    const { ask, batch, distributed, sql } = (yield* Database).reads
    const credentialColumns = sql.csv(columns.map((column) => sql`credentials.${sql(column)}`))

    const keyOf = compileOnce(sql, ["hash"], ({ hash }) =>
      distributed
        ? sql<KeyRow>`
        SELECT account_id AS key_account_id, management FROM api_keys WHERE hash = ${hash} AND revoked_at IS NULL`
        : sql<KeyRow>`
        SELECT api_keys.account_id AS key_account_id, management, workspaces.id AS default_workspace_id FROM api_keys
        LEFT JOIN workspaces ON workspaces.account_id = api_keys.account_id AND is_default AND deleted_at IS NULL
        WHERE hash = ${hash} AND revoked_at IS NULL`
    )
    const readingOf = compileOnce(
      sql,
      ["hash", "id"],
      ({ hash, id }) => sql<ReadingRow>`
        SELECT api_keys.account_id AS key_account_id, management, 1 AS n, ${credentialColumns} FROM api_keys
        LEFT JOIN credentials ON credentials.account_id = api_keys.account_id AND credentials.id = ${id}
        WHERE hash = ${hash} AND revoked_at IS NULL`
    )

    const findKey = batch<ApiKeyHash, Option.Option<FoundApiKey>>({
      operation: "api_keys.find",
      one: (hash) =>
        Effect.map(keyOf({ hash: bytes(hash) }), ([row]) => Option.map(Option.fromUndefinedOr(row), withWorkspace)),
      many: (wanted) =>
        Effect.map(
          sql<KeyRow>`
            SELECT encode(hash, 'hex') AS key_hash, api_keys.account_id AS key_account_id, management,
              workspaces.id AS default_workspace_id
            FROM api_keys
            LEFT JOIN workspaces ON workspaces.account_id = api_keys.account_id AND is_default AND deleted_at IS NULL
            WHERE hash = ANY(${Array.from(new Set(wanted), bytes)}::bytea[]) AND revoked_at IS NULL`,
          (rows) => {
            const byHash = new Map(rows.map((row) => [row.key_hash, withWorkspace(row)]))
            return wanted.map((hash) => Option.fromUndefinedOr(byHash.get(hash)))
          }
        )
    })

    /** OFFSET 0 makes PostgreSQL use both columns of the key; else it may read all credentials of an account. */
    const findReading = batch<Reading, Option.Option<FoundApiKey>>({
      operation: "api_keys.find_with_credential",
      one: ({ hash, id }) =>
        Effect.map(readingOf({ hash: bytes(hash), id }), ([row]) =>
          Option.map(Option.fromUndefinedOr(row), (found) => withCredential(id, found))
        ),
      many: (wanted) =>
        Effect.map(
          sql<ReadingRow>`
            SELECT api_keys.account_id AS key_account_id, management, n::int AS n, ${credentialColumns}
            FROM unnest(${wanted.map(({ hash }) => bytes(hash))}::bytea[], ${wanted.map(({ id }) => id)}::uuid[])
              WITH ORDINALITY AS wanted (hash, id, n)
            JOIN api_keys ON api_keys.hash = wanted.hash AND revoked_at IS NULL
            LEFT JOIN LATERAL (
              SELECT * FROM credentials WHERE account_id = api_keys.account_id AND id = wanted.id OFFSET 0
            ) AS credentials ON true`,
          (rows) => {
            const found = new Map(rows.map((row) => [row.n, row]))
            return wanted.map(({ id }, index) =>
              Option.map(Option.fromUndefinedOr(found.get(index + 1)), (row) => withCredential(id, row))
            )
          }
        )
    })

    return {
      find: (hash, reading) =>
        reading === undefined || distributed ? findKey(hash) : findReading({ hash, id: reading }),
      ownedBy: (account_id, wanted) =>
        Effect.map(
          ask(
            sql<{ hash: ApiKeyHash }>`
              SELECT encode(hash, 'hex') AS hash FROM api_keys
              WHERE hash = ANY(${wanted.map(bytes)}::bytea[]) AND account_id = ${account_id} AND revoked_at IS NULL`,
            "api_keys.owned_by"
          ),
          (rows) => new Set(rows.map(({ hash }) => hash))
        )
    }
  })
)
