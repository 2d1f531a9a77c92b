import { Context, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** The events of one transaction, as they are stored. */
export interface AuditEntry {
  readonly seq: bigint
  /** Begin of the transaction, as ISO 8601. */
  readonly at: string
  /** The same as the 8 bytes that PostgreSQL sends, which are exact. */
  readonly stamp: Uint8Array
  /** The events as the JSON array that was written, byte for byte. */
  readonly events: string
}

/** A seal on the entries since the one before it, and on that one. */
export interface AuditCheckpoint {
  readonly number: bigint
  readonly last_seq: bigint
  /** Of each entry, 8 bytes of `seq` (big-endian) and the SHA-256 of these bytes, its stamp and its events. */
  readonly digests: Uint8Array
  /** SHA-256 of the previous checkpoint's hash and the digests. */
  readonly hash: string
}

export type AuditHead = Omit<AuditCheckpoint, "digests">

/** Reads what was recorded, and seals it. Who writes entries waits for neither. */
export class AuditLog extends Context.Service<
  AuditLog,
  {
    /**
     * Brings under checkpoints what was there when it was called, once every transaction that was writing then has
     * ended; not what is left when `patience`, in milliseconds, is over. Answers with the newest checkpoint.
     */
    readonly seal: (patience: number) => Effect.Effect<Option.Option<AuditHead>, ServiceUnavailable>
    /** The next few checkpoints after a number, in their order. */
    readonly checkpoints: (after: bigint) => Effect.Effect<ReadonlyArray<AuditCheckpoint>, ServiceUnavailable>
    /** The next few entries, in their order. */
    readonly entries: (range: {
      readonly after: bigint
      readonly upTo: bigint
    }) => Effect.Effect<ReadonlyArray<AuditEntry>, ServiceUnavailable>
    readonly countAfter: (seq: bigint) => Effect.Effect<number, ServiceUnavailable>
  }
>()("byok/AuditLog") {}
