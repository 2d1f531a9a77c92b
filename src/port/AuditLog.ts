import { Context, type Option } from "effect"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Reads the audit log, and seals its entries by a chain of hashes that shows later changes. Writers wait for neither. */
export class AuditLog extends Context.Service<
  AuditLog,
  {
    /** Seals the entries that exist now, after waiting up to `timeout` ms for earlier writers. Returns the last checkpoint. */
    readonly seal: (timeout: number) => Answer<Option.Option<AuditHead>>
    /** Finds a checkpoint by its hash, in hexadecimal. */
    readonly checkpointOf: (hash: string) => Answer<Option.Option<AuditHead>>
    /** The next page of checkpoints after a number, in order. */
    readonly checkpoints: (after: bigint) => Answer<ReadonlyArray<AuditCheckpoint>>
    /** The next page of entries after a number, in order. */
    readonly entries: (range: { readonly after: bigint; readonly upTo: bigint }) => Answer<ReadonlyArray<AuditEntry>>
    /** The newest entries, or the oldest `after` a number: up to `limit`, fewer if they are large, at least one if any. */
    readonly read: (page: EntryPage) => Answer<ReadonlyArray<ReadEntry>>
    /** Counts the entries that no checkpoint covers, up to `limit`. */
    readonly countUnsealed: (limit?: number) => Answer<number>
  }
>()("byok/AuditLog") {}

/** Number of rows at which the service stops counting, so that counts take no longer as a table grows. */
export const countLimit = 10_000

/** Formats a count that stops at one more than the limit. */
export const countOf = (count: number): string =>
  count > countLimit ? `more than ${countLimit.toLocaleString("en")}` : String(count)

/**
 * A stored row of the audit log: the events of one transaction about one credential; or about one account and none of its
 * credentials; or about no account.
 */
export interface AuditEntry {
  readonly seq: bigint
  /** Start of the transaction in ISO 8601. */
  readonly at: string
  /** Start of the transaction as PostgreSQL's 8-byte timestamp, which is exact. */
  readonly stamp: Uint8Array
  /** The events as a JSON array, byte for byte as written. */
  readonly events: string
}

/** An entry with the name of the API key that caused it; null for another actor or a deleted key. */
export interface ReadEntry extends Omit<AuditEntry, "stamp"> {
  readonly actor_name: string | null
}

/** Filters entries by account and credential. */
export interface EntryPage {
  readonly account_id?: AccountId
  readonly credential_id?: CredentialId
  /** Only entries with a smaller `seq`. */
  readonly before?: number
  /** Only sealed entries with a larger `seq`, oldest first: no later commit comes before them. */
  readonly after?: number
  readonly limit: number
}

/** A hash that seals the previous checkpoint and the entries since. */
export interface AuditCheckpoint {
  readonly number: bigint
  readonly last_seq: bigint
  /** For each entry, `seq` in 8 bytes (big-endian) and the SHA-256 of these bytes, its stamp and its events. */
  readonly digests: Uint8Array
  /** SHA-256 of the previous checkpoint's hash and the digests, in hexadecimal. */
  readonly hash: string
}

export type AuditHead = Omit<AuditCheckpoint, "digests">
