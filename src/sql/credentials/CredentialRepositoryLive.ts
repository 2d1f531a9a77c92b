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

/*
 * How to think about this folder.
 *
 * A credential is a row of `credentials`; those of one workspace and provider are a pool, counted in a row of `pools`. The
 * pool is the unit of order, of limits and of locking: a write locks its pool's row and is then alone with the members.
 *
 * Each write is one call of a function in the schema (`src/sql/schema/writes.ts`): it takes the locks, checks, stores
 * and records the audit entry in one transaction and one round trip, the same on one PostgreSQL and on Citus. The
 * functions answer with an `outcome`; `writeCredentials.ts` sends their arguments and turns outcomes into errors. A write
 * whose answer was lost is sent again, and recognised by its `operation` in the audit log.
 *
 * Reads never lock. Look-ups of one credential in the same turn of the event loop share a statement (`makeLookUp`);
 * `listCredentials.ts` reads pages, whose size is known only after reading, so they take memory as they grow.
 * `LeakedKeysLive.ts` finds by their labels the keys that may be a leaked one; `IdempotencyRecordsLive.ts` finds what a
 * repeated create stored.
 */

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
