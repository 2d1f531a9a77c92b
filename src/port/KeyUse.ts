import { Context, type DateTime, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"

/** A key-encryption key as an instance registered it. */
export interface RegisteredKey {
  readonly kek_id: string
  /** How many wraps are reserved for it: no fewer than it has made. */
  readonly wraps: number
  /** When an instance first registered it. Absent if the store did not record that yet. */
  readonly registered_at?: DateTime.Utc
}

/** A key-encryption key with what uses it. */
export interface UsedKey extends RegisteredKey {
  /** How many credentials name it, as far as `countLimit`. */
  readonly credentials: number
  /** Present if even more do. */
  readonly more_credentials?: true
  readonly retired: boolean
}

/** A credential and the key-encryption key that it names. */
export interface NamingCredential {
  readonly kek_id: string
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly credential_id: CredentialId
}

/** Reports how much each key-encryption key is used. */
export class KeyUse extends Context.Service<
  KeyUse,
  {
    /** Every key that was ever registered or that a credential names, ordered by id. */
    readonly list: Effect.Effect<ReadonlyArray<UsedKey>, ServiceUnavailable>
    /** The registered keys that are not retired, without a count of what names them. */
    readonly live: Effect.Effect<ReadonlyArray<RegisteredKey>, ServiceUnavailable>
    /** Up to `limit` credentials that name one of the keys, in order of key and id. */
    readonly naming: (
      kek_ids: ReadonlyArray<string>,
      limit: number
    ) => Effect.Effect<ReadonlyArray<NamingCredential>, ServiceUnavailable>
  }
>()("byok/KeyUse") {}
