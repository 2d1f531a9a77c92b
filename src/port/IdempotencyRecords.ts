import { Context, type Duration, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { PoolFull, UnstoredCredential, WorkspaceGone } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Identifies a request with an idempotency key that created a credential. */
export interface IdempotencyRecord {
  readonly key_hash: Uint8Array
  readonly fingerprint: Uint8Array
}

/** Stores idempotency records, at most one per account and `key_hash`. */
export class IdempotencyRecords extends Context.Service<
  IdempotencyRecords,
  {
    /**
     * Stores the credential and its record, both or neither, and returns what `CredentialRepository.insert` returns.
     * Stores nothing and returns none if the account has a record of another credential under that `key_hash`; if one is
     * being stored, waits for its outcome.
     */
    readonly insert: (
      account_id: AccountId,
      credential: UnstoredCredential,
      sealed: SealedKey,
      record: IdempotencyRecord
    ) => Answer<Option.Option<Credential>, WorkspaceGone | PoolFull>
    readonly find: (
      account_id: AccountId,
      key_hash: Uint8Array
    ) => Answer<Option.Option<{ readonly credential_id: CredentialId; readonly fingerprint: Uint8Array }>>
    /** Deletes up to `limit` records older than `age` by the store's own clock, and returns how many it deleted. */
    readonly forget: (age: Duration.Duration, limit: number) => Answer<number>
  }
>()("byok/IdempotencyRecords") {}
