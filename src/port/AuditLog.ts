import { Context, type Option } from "effect"
import type { Answer } from "./DatabaseFailure.ts"

/** The events of one transaction about one account, or about none, as stored. */
export interface AuditEntry {
  readonly seq: bigint
  /** Start of the transaction in ISO 8601. */
  readonly at: string
  /** Start of the transaction as PostgreSQL's 8-byte timestamp, which is exact. */
  readonly stamp: Uint8Array
  /** The events as the JSON array that was written, byte for byte. */
  readonly events: string
}

/** Seals the entries since the previous checkpoint, and that checkpoint. */
export interface AuditCheckpoint {
  readonly number: bigint
  readonly last_seq: bigint
  /** For each entry, `seq` in 8 bytes (big-endian) and the SHA-256 of these bytes, its stamp and its events. */
  readonly digests: Uint8Array
  /** SHA-256 of the previous checkpoint's hash and the digests, in hexadecimal. */
  readonly hash: string
}

export type AuditHead = Omit<AuditCheckpoint, "digests">

/** Reads and seals audit entries. Writing an entry waits for neither. */
export class AuditLog extends Context.Service<
  AuditLog,
  {
    /**
     * Seals the entries that exist when it is called, after the transactions that are writing at that moment have
     * ended. Gives up on what is left after `timeout` milliseconds. Returns the newest checkpoint.
     */
    readonly seal: (timeout: number) => Answer<Option.Option<AuditHead>>
    /** The checkpoint with a hash, in hexadecimal. */
    readonly checkpointOf: (hash: string) => Answer<Option.Option<AuditHead>>
    /** The next page of checkpoints after a number, in order. */
    readonly checkpoints: (after: bigint) => Answer<ReadonlyArray<AuditCheckpoint>>
    /** The next page of entries, in order. */
    readonly entries: (range: { readonly after: bigint; readonly upTo: bigint }) => Answer<ReadonlyArray<AuditEntry>>
    /** Counts the entries that no checkpoint covers, as far as `limit`. */
    readonly unsealed: (limit?: number) => Answer<number>
  }
>()("byok/AuditLog") {}
