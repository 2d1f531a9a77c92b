import { Effect, Layer } from "effect"
import type { Credential } from "../../domain/Credential.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import { CredentialRepository, PoolLimits, type StoredCredential } from "../../port/CredentialRepository.ts"
import { findCredential } from "../../port/Prefetched.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp } from "../connection/makeLookUp.ts"
import { columns, credentialOf, sealedColumns, type Stored } from "./credentialRows.ts"
import { deleteCredential } from "./deleteCredential.ts"
import { createCredential } from "./createCredential.ts"
import { listCredentials, scanCredentials } from "./listCredentials.ts"
import { reorderCredentials } from "./reorderCredentials.ts"
import { updateCredential } from "./updateCredential.ts"

interface Wanted {
  readonly account_id: AccountId
  readonly id: CredentialId
}

type StoredSealed = Stored & SealedKey & Pick<StoredCredential, "revision" | "key_version" | "workspace_deleted">

/** Statements name their columns: the sealed key leaves the database only where it is asked for. */
export const layer = Layer.effect(
  CredentialRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const limits = yield* PoolLimits

    const { sql } = reads
    const by = { account_id: "uuid", id: "uuid" } as const
    const find = makeLookUp<Wanted, Stored, Credential>(reads, {
      operation: "credentials.find",
      by,
      select: ({ account_id, id }) => sql<Stored>`
        SELECT account_id, ${sql.csv(columns)} FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
      read: credentialOf
    })
    const findSealed = makeLookUp<Wanted, StoredSealed, StoredCredential>(reads, {
      operation: "credentials.find_sealed",
      by,
      select: ({ account_id, id }) => sql<StoredSealed>`
        SELECT account_id, ${sql.csv(sealedColumns)}, revision, key_version, (
          SELECT deleted_at IS NOT NULL FROM workspaces
          WHERE workspaces.account_id = ${account_id} AND workspaces.id = workspace_id
        ) AS workspace_deleted
        FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
      read: (row) => ({
        credential: credentialOf(row),
        sealed: { kek_id: row.kek_id, sealed: row.sealed, wrapped_dek: row.wrapped_dek },
        revision: row.revision,
        key_version: row.key_version,
        workspace_deleted: row.workspace_deleted
      })
    })

    return {
      insert: createCredential(writes, limits),
      findById: (account_id, id) => findCredential(account_id, id, find),
      findSealed: (account_id, id) => findSealed({ account_id, id }),
      list: listCredentials(reads),
      update: updateCredential(writes, limits),
      delete: deleteCredential(writes),
      scan: scanCredentials(reads),
      reorder: reorderCredentials(writes)
    }
  })
)
