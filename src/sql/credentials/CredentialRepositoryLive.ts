import { Effect, Layer } from "effect"
import type { Credential } from "../../domain/Credential.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { CredentialRepository, PoolLimits, type StoredCredential } from "../../port/CredentialRepository.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp } from "../connection/statements.ts"
import {
  credentialColumns,
  credentialOf,
  type CredentialRow,
  storedColumns,
  storedOf,
  type SealedCredentialRow
} from "../rows/credentialRows.ts"
import { listCredentials, scanCredentials } from "./listCredentials.ts"
import { makeWrites } from "./writeCredentials.ts"

interface Wanted {
  readonly account_id: AccountId
  readonly id: CredentialId
}

/** Statements name their columns, so that sealed keys leave the database only where needed. */
export const layer = Layer.effect(
  CredentialRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const limits = yield* PoolLimits

    const { sql } = reads
    const by = { account_id: "uuid", id: "uuid" } as const
    const find = makeLookUp<Wanted, CredentialRow, Credential>(reads, {
      operation: "credentials.find",
      by,
      select: ({ account_id, id }) => sql<CredentialRow>`
        SELECT account_id, ${sql.csv(credentialColumns)} FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
      read: credentialOf
    })
    const findStored = makeLookUp<Wanted, SealedCredentialRow, StoredCredential>(reads, {
      operation: "credentials.find_sealed",
      by,
      select: ({ account_id, id }) => sql<SealedCredentialRow>`
        SELECT credentials.account_id, ${storedColumns(sql, sql`${account_id}`)} FROM credentials
        WHERE account_id = ${account_id} AND id = ${id}`,
      read: storedOf
    })

    return {
      ...makeWrites(writes, limits),
      findById: (account_id, id) => find({ account_id, id }),
      findSealed: (account_id, id) => findStored({ account_id, id }),
      list: listCredentials(reads),
      scan: scanCredentials(reads)
    }
  })
)
