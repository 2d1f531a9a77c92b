import { Effect, Layer, Option } from "effect"
import type { Statement } from "effect/sql"
import { listNames } from "../../domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import type { ApiKeyRole } from "../../domain/Principal.ts"
import { ApiKeys, maxPrefetchedBytes, type ResolvedApiKey, type Prefetched } from "../../port/ApiKeys.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp } from "../connection/statements.ts"
import type { Operation } from "../connection/Query.ts"
import { hasMarks } from "../rows/parkingRows.ts"
import {
  listBytes,
  credentialColumns,
  credentialOf,
  type CredentialRow,
  storedColumns,
  storedOf,
  type SealedCredentialRow
} from "../rows/credentialRows.ts"

const bytesOf = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

/** An API key with the default workspace of its account. */
interface KeyRow {
  readonly key_account_id: AccountId
  readonly role: ApiKeyRole
  /** Undefined with Citus: its statements must name the account, which is not known before this row is read. */
  readonly default_workspace_id?: WorkspaceId | null
  /** Whether a provider key of the account, perhaps replaced since, is marked as leaked; undefined with Citus. */
  readonly has_marks?: boolean
}

/** The hash of an API key, and the id of the credential that its request names. */
interface KeyAndCredential {
  readonly hash: ApiKeyHash
  readonly id: CredentialId
}

/** An API key with the credential that its request names; `id` is null if the account has no such credential. */
type KeyAndCredentialRow<Row> = Pick<KeyRow, "key_account_id" | "role"> &
  ((Row & { readonly bytes: number }) | { readonly id: null })

/** The columns that can be long. */
const longColumns: ReadonlySet<string> = new Set([...listNames, "sealed"])

/**
 * Reads an API key together with the rows that its request needs next, so that a get takes one round trip, and most
 * creates and updates two.
 */
export const layer = Layer.effect(
  ApiKeys,
  Effect.gen(function* () {
    const { reads } = yield* Database
    const { ask, distributed, sql } = reads
    const findKey = makeLookUp<Pick<KeyAndCredential, "hash">, KeyRow, ResolvedApiKey>(reads, {
      operation: "api_keys.find",
      by: { hash: "text" },
      select: ({ hash }) =>
        distributed
          ? sql<KeyRow>`
            SELECT account_id AS key_account_id, role FROM api_keys
            WHERE hash = decode(${hash}, 'hex') AND revoked_at IS NULL`
          : sql<KeyRow>`
            SELECT api_keys.account_id AS key_account_id, role, workspaces.id AS default_workspace_id,
              ${hasMarks(sql, sql`api_keys.account_id`)} AS has_marks FROM api_keys
            LEFT JOIN workspaces ON workspaces.account_id = api_keys.account_id AND is_default AND deleted_at IS NULL
            WHERE hash = decode(${hash}, 'hex') AND revoked_at IS NULL`,
      // Leaves out `n`, the number of the row in a batch.
      read: ({ key_account_id: account_id, n: _n, role, ...prefetched }) => ({
        account_id,
        role,
        prefetched: { account_id, ...prefetched }
      }),
      // Requests with the same API key share a row.
      nameOf: ({ hash }) => hash
    })
    /** Selects a column of the credential; a long column is null if the credential is too large to be prefetched. */
    const valueOf = (column: string) => {
      const value = sql.literal(`credentials.${column}`)
      return longColumns.has(column)
        ? sql`CASE WHEN size.bytes <= ${sql.literal(String(maxPrefetchedBytes))} THEN ${value} END AS ${sql(column)}`
        : value
    }
    const bytesOfLists = listBytes(sql, "credentials")
    const makeFindWithCredential = <Row extends CredentialRow>(
      operation: Operation,
      selected: Statement.Fragment,
      size: Statement.Fragment,
      prefetchedOf: (id: CredentialId, credential: Option.Option<Row>) => Omit<Prefetched, "account_id">
    ) =>
      makeLookUp<KeyAndCredential, KeyAndCredentialRow<Row>, ResolvedApiKey>(reads, {
        operation,
        by: { hash: "text", id: "uuid" },
        // OFFSET 0 makes PostgreSQL compute the size once.
        select: ({ hash, id }) => sql<KeyAndCredentialRow<Row>>`
          SELECT api_keys.account_id AS key_account_id, role, size.bytes, ${selected} FROM api_keys
          LEFT JOIN credentials ON credentials.account_id = api_keys.account_id AND credentials.id = ${id}
          LEFT JOIN LATERAL (SELECT ${size} AS bytes OFFSET 0) AS size ON true
          WHERE hash = decode(${hash}, 'hex') AND revoked_at IS NULL`,
        read: (row, { id }) => {
          const { key_account_id: account_id, role } = row
          const [credential, bytes] = row.id === null ? [Option.none(), 0] : [Option.some(row), row.bytes]
          const prefetched = bytes > maxPrefetchedBytes ? {} : prefetchedOf(id, credential)
          return { account_id, role, prefetched: { account_id, bytes, ...prefetched } }
        }
      })
    const findWithCredential = makeFindWithCredential<CredentialRow>(
      "api_keys.find_with_credential",
      sql.csv(credentialColumns.map(valueOf)),
      bytesOfLists,
      (id, credential) => ({ credential: { id, row: Option.map(credential, credentialOf) } })
    )
    const findWithSealedCredential = makeFindWithCredential<SealedCredentialRow>(
      "api_keys.find_with_sealed_credential",
      storedColumns(sql, sql`credentials.account_id`, valueOf),
      sql`${bytesOfLists} + octet_length(credentials.sealed)`,
      (id, credential) => ({ sealed: { id, row: Option.map(credential, storedOf) } })
    )

    return {
      find: (hash, id, withSealedKey = false) =>
        id === undefined || distributed
          ? findKey({ hash })
          : (withSealedKey ? findWithSealedCredential : findWithCredential)({ hash, id }),
      ownedBy: (account_id, hashes) =>
        Effect.map(
          ask(
            sql<{ hash: ApiKeyHash }>`
              SELECT encode(hash, 'hex') AS hash FROM api_keys
              WHERE hash = ANY(${hashes.map(bytesOf)}::bytea[]) AND account_id = ${account_id} AND revoked_at IS NULL`,
            "api_keys.owned_by"
          ),
          (rows) => new Set(rows.map(({ hash }) => hash))
        )
    }
  })
)
