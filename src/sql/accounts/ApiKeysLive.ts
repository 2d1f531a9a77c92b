import { Effect, Layer, Option } from "effect"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import { ApiKeys, type FoundApiKey } from "../../port/ApiKeys.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp } from "../connection/makeLookUp.ts"
import { hasMarks } from "../credentials/LeakedKeysLive.ts"
import { columns, credentialOf, type Stored } from "../credentials/credentialRows.ts"

const bytes = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

/** A key with the default workspace of its account. */
interface KeyRow {
  readonly key_account_id: AccountId
  readonly management: boolean
  readonly viewer: boolean
  /** Undefined where accounts are spread over nodes: their look-up reads the API key alone. */
  readonly default_workspace_id?: WorkspaceId | null
  readonly has_marks?: boolean
}

interface Reading {
  readonly hash: ApiKeyHash
  readonly id: CredentialId
}

/** A key with the credential that it reads; the columns are null if its account has no such credential. */
type ReadingRow = Pick<KeyRow, "key_account_id" | "management" | "viewer"> & (Stored | { readonly id: null })

/** Reads the rows that the request needs next together with its key: a get takes one round trip, a create two. */
export const layer = Layer.effect(
  ApiKeys,
  Effect.gen(function* () {
    const { reads } = yield* Database
    const { ask, distributed, sql } = reads
    const credentialColumns = sql.csv(columns.map((column) => sql`credentials.${sql(column)}`))

    const findKey = makeLookUp<Pick<Reading, "hash">, KeyRow, FoundApiKey>(reads, {
      operation: "api_keys.find",
      by: { hash: "text" },
      select: ({ hash }) =>
        distributed
          ? sql<KeyRow>`
            SELECT account_id AS key_account_id, management, viewer FROM api_keys
            WHERE hash = decode(${hash}, 'hex') AND revoked_at IS NULL`
          : sql<KeyRow>`
            SELECT api_keys.account_id AS key_account_id, management, viewer, workspaces.id AS default_workspace_id,
              ${hasMarks(sql, sql`api_keys.account_id`)} AS has_marks FROM api_keys
            LEFT JOIN workspaces ON workspaces.account_id = api_keys.account_id AND is_default AND deleted_at IS NULL
            WHERE hash = decode(${hash}, 'hex') AND revoked_at IS NULL`,
      read: ({ key_account_id: account_id, management, n: _n, viewer, ...home }) => ({
        account_id,
        management,
        viewer,
        prefetched: { account_id, ...home }
      }),
      nameOf: ({ hash }) => hash
    })
    const findReading = makeLookUp<Reading, ReadingRow, FoundApiKey>(reads, {
      operation: "api_keys.find_with_credential",
      by: { hash: "text", id: "uuid" },
      select: ({ hash, id }) => sql<ReadingRow>`
        SELECT api_keys.account_id AS key_account_id, management, viewer, ${credentialColumns} FROM api_keys
        LEFT JOIN credentials ON credentials.account_id = api_keys.account_id AND credentials.id = ${id}
        WHERE hash = decode(${hash}, 'hex') AND revoked_at IS NULL`,
      read: ({ key_account_id: account_id, management, viewer, ...stored }, { id }) => {
        const found = stored.id === null ? Option.none() : Option.some(credentialOf(stored))
        return { account_id, management, viewer, prefetched: { account_id, credential: { id, found } } }
      }
    })

    return {
      find: (hash, reading) =>
        reading === undefined || distributed ? findKey({ hash }) : findReading({ hash, id: reading }),
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
