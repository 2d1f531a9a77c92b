import { Context, type Duration, type Option } from "effect"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Finds the credential of an earlier create with the same idempotency key. `CredentialRepository` adds records. */
export class IdempotencyRecords extends Context.Service<
  IdempotencyRecords,
  {
    readonly find: (
      account_id: AccountId,
      key_hash: Uint8Array
    ) => Answer<Option.Option<{ readonly credential_id: CredentialId; readonly fingerprint: Uint8Array }>>
    /** Deletes up to `limit` records older than `age` by the store's own clock, and returns how many it deleted. */
    readonly deleteOlderThan: (age: Duration.Duration, limit: number) => Answer<number>
  }
>()("byok/IdempotencyRecords") {}

/** Identifies the request that created a credential by the hashes of its idempotency key and of its members. */
export interface IdempotencyRecord {
  readonly key_hash: Uint8Array
  readonly fingerprint: Uint8Array
}
