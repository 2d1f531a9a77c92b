import { Context, type Option } from "effect"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { Answer } from "./DatabaseFailure.ts"

/**
 * Reads the audit log, and seals its entries with a chain of hashes that reveals later changes. Neither makes writers
 * of entries wait.
 */
export class AuditLog extends Context.Service<
  AuditLog,
  {
    /**
     * Seals the entries that exist now once no transaction can add an earlier one; gives up after `timeout`
     * milliseconds. Returns the last checkpoint, if any.
     */
    readonly seal: (timeout: number) => Answer<Option.Option<AuditHead>>
    /** Finds a checkpoint by its hash, in hexadecimal. */
    readonly checkpointOf: (hash: string) => Answer<Option.Option<AuditHead>>
    /** The next page of checkpoints whose `number` is larger, in order. */
    readonly checkpoints: (after: bigint) => Answer<ReadonlyArray<AuditCheckpoint>>
    /** For verification: the next page of entries with a `seq` above `after` and at most `upTo`, in order. */
    readonly entries: (range: { readonly after: bigint; readonly upTo: bigint }) => Answer<ReadonlyArray<AuditEntry>>
    /**
     * For readers: matching entries, newest first unless `after` is set. If entries are large, the page has fewer than
     * `limit`, but at least one.
     */
    readonly read: (page: EntryPage) => Answer<ReadonlyArray<ReadEntry>>
    /** Finds the `seq` of an account's entry, and how many events it has. */
    readonly find: (
      account_id: AccountId,
      id: string
    ) => Answer<Option.Option<{ readonly seq: number; readonly events: number }>>
    /** Counts the entries that no checkpoint covers; stops at `limit`. */
    readonly countUnsealed: (limit?: number) => Answer<number>
  }
>()("byok/AuditLog") {}

/** Largest count that the service reports exactly, so that counts take no longer as a table grows. */
export const countLimit = 10_000

/** Formats a count; one above `countLimit` as "more than 10,000". */
export const formatCount = (count: number): string =>
  count > countLimit ? `more than ${countLimit.toLocaleString("en")}` : String(count)

/** A stored row of the audit log: events of one transaction about one credential, one account, or neither. */
export interface AuditEntry {
  readonly seq: bigint
  /** Start of the transaction in ISO 8601. */
  readonly at: string
  /** Start of the transaction as PostgreSQL's 8-byte timestamp, which is exact. */
  readonly stamp: Uint8Array
  /** The events as a JSON array, byte for byte as written. */
  readonly events: string
}

/** An entry with its id, and the name of the API key that caused it; null for another actor or a deleted key. */
export interface ReadEntry extends Omit<AuditEntry, "stamp"> {
  /** A UUID that tells an account nothing of others. */
  readonly id: string
  readonly actor_name: string | null
}

/** Selects a page of entries, of one account or credential if set. */
export interface EntryPage {
  readonly account_id?: AccountId
  readonly credential_id?: CredentialId
  /** Only entries with a smaller `seq`. */
  readonly before?: number
  /** Only sealed entries with a larger `seq`, oldest first: no later commit adds one among them. */
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

/** A checkpoint without its digests: enough to continue the chain of hashes from. */
export type AuditHead = Omit<AuditCheckpoint, "digests">
