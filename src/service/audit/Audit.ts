import { createHash } from "node:crypto"
import { Context, Data, Effect, Layer, Option } from "effect"
import { type AuditCheckpoint, type AuditEntry, type AuditHead, AuditLog } from "../../port/AuditLog.ts"

/** The first fault of the log: an entry that differs from its sealed state, or a checkpoint that breaks the chain. */
export class AuditFault extends Data.TaggedError("AuditFault")<{
  readonly kind: "edited" | "removed" | "inserted" | "checkpoint" | "rewritten"
  readonly seq: bigint
}> {
  override get message() {
    switch (this.kind) {
      case "checkpoint":
        return `The checkpoint over audit entry ${this.seq} was edited or removed.`
      case "rewritten":
        return `No checkpoint up to audit entry ${this.seq} has the expected hash: entries were removed from the end, or the chain was rebuilt.`
      default:
        return `Audit entry ${this.seq} was ${this.kind}.`
    }
  }
}

/** The minimum of PostgreSQL's `bigint`: reading from it also finds forged entries and checkpoints below 1. */
const belowAll = -(2n ** 63n)

/** The head of an empty chain; the first checkpoint has number 1. */
const initialHead: AuditHead = { number: 0n, last_seq: belowAll, hash: "" }

/** How long sealing waits for transactions that write entries, in milliseconds. */
const sealTimeout = 5000

export type AuditReport = Effect.Success<ReturnType<Audit["Service"]["verify"]>>

/** Exports and verifies the audit log. Its checkpoints are a chain of hashes of the entries, which exposes changes. */
export class Audit extends Context.Service<Audit>()("byok/Audit", {
  make: Effect.gen(function* () {
    const log = yield* AuditLog

    /** Iterates over the entries after `from`, up to `upTo`, with one page in memory. */
    const iterate = (from: bigint, upTo: bigint) => {
      let page: ReadonlyArray<AuditEntry> = []
      let index = 0
      let after = from
      return {
        advance: () => void (index += 1),
        current: Effect.gen(function* () {
          if (index >= page.length) {
            page = yield* log.entries({ after, upTo })
            index = 0
            after = page.at(-1)?.seq ?? after
          }
          return page[index]
        })
      }
    }

    const verify = Effect.fn("Audit.verify")(function* (expected?: string, from?: string) {
      const newest = Option.getOrElse(yield* log.seal(sealTimeout), () => initialHead)
      const start = from === undefined ? Option.some(initialHead) : yield* log.checkpointOf(from)
      let previous: AuditHead = Option.getOrElse(start, () => initialHead)
      const entries = iterate(previous.last_seq, newest.last_seq)
      let sawExpected = expected === undefined || expected === from
      let lastIntact: AuditEntry | undefined
      const counts = { entries: 0, events: 0 }

      const checkCheckpoint = Effect.fnUntraced(function* (checkpoint: AuditCheckpoint) {
        const digests = decodeDigests(checkpoint)
        const hash = sha256(Buffer.from(previous.hash, "hex"), checkpoint.digests).toString("hex")
        const isIntact =
          checkpoint.hash === hash &&
          checkpoint.number === previous.number + 1n &&
          checkpoint.last_seq === digests.at(-1)?.seq
        if (!isIntact) {
          const entry = yield* entries.current
          return yield* new AuditFault({ kind: "checkpoint", seq: entry?.seq ?? previous.last_seq + 1n })
        }
        for (const { digest, seq } of digests) {
          const entry = yield* entries.current
          if (entry === undefined || entry.seq > seq) return yield* new AuditFault({ kind: "removed", seq })
          if (entry.seq < seq) return yield* new AuditFault({ kind: "inserted", seq: entry.seq })
          if (!digest.equals(digestEntry(entry))) return yield* new AuditFault({ kind: "edited", seq })
          counts.entries += 1
          counts.events += parseEvents(entry).length
          lastIntact = entry
          entries.advance()
        }
        previous = { number: checkpoint.number, last_seq: checkpoint.last_seq, hash }
        sawExpected ||= hash === expected
      })

      const checkAll = Effect.gen(function* () {
        if (Option.isNone(start)) return yield* new AuditFault({ kind: "rewritten", seq: newest.last_seq })
        // Reading from below 1 exposes checkpoints that were inserted before the first.
        let after = from === undefined ? belowAll : previous.number
        while (previous.number < newest.number) {
          const page = yield* log.checkpoints(after)
          if (page.length === 0) return yield* new AuditFault({ kind: "checkpoint", seq: previous.last_seq + 1n })
          for (const checkpoint of page) {
            if (previous.number < newest.number) yield* checkCheckpoint(checkpoint)
            after = checkpoint.number
          }
        }
        if (!sawExpected) return yield* new AuditFault({ kind: "rewritten", seq: previous.last_seq })
      })

      const fault = yield* checkAll.pipe(
        Effect.as(null),
        Effect.catchTag("AuditFault", (error) => Effect.succeed(error))
      )
      return {
        /** Number of intact entries and of their events, and the last intact entry. */
        ...counts,
        last_seq: lastIntact === undefined ? null : Number(lastIntact.seq),
        last_at: lastIntact?.at ?? null,
        unsealed: yield* log.countUnsealed(),
        /** Hash of the newest intact checkpoint. Keep it outside the database and pass it to a later `verify`. */
        head: previous.hash === "" ? null : previous.hash,
        fault
      }
    })

    return {
      /**
       * Seals new entries. Then verifies all sealed ones, or those after the checkpoint with hash `from`. Reports a
       * fault if no verified checkpoint has the hash `expected`.
       */
      verify,

      /**
       * Seals new entries. Then passes the events of the sealed ones after `after` to `write`, a page of JSON lines at
       * a time, until it returns false. Returns the newest checkpoint: a later export continues after its `last_seq`.
       */
      export: Effect.fn("Audit.export")(function* <E>(
        after: bigint,
        write: (lines: string) => Effect.Effect<boolean, E>
      ) {
        const head = yield* log.seal(sealTimeout)
        if (Option.isNone(head)) return head
        let last = after
        for (;;) {
          const page = yield* log.entries({ after: last, upTo: head.value.last_seq })
          const lines = page.flatMap((entry) =>
            parseEvents(entry).map(
              (event) => `${JSON.stringify({ seq: Number(entry.seq), at: entry.at, ...Object(event) })}\n`
            )
          )
          if (page.length === 0 || !(yield* write(lines.join("")))) return head
          last = page.at(-1)?.seq ?? last
        }
      })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** Decodes the digests of a checkpoint: for each entry, `seq` in 8 bytes and a SHA-256 in 32. */
const decodeDigests = ({ digests }: AuditCheckpoint) => {
  const bytes = Buffer.from(digests.buffer, digests.byteOffset, digests.length)
  return Array.from({ length: Math.floor(bytes.length / 40) }, (_, index) => ({
    seq: bytes.readBigInt64BE(40 * index),
    digest: bytes.subarray(40 * index + 8, 40 * index + 40)
  }))
}

const digestEntry = ({ events, seq, stamp }: AuditEntry) => {
  const seqBytes = Buffer.alloc(8)
  seqBytes.writeBigInt64BE(seq)
  return sha256(seqBytes, stamp, Buffer.from(events))
}

const sha256 = (...parts: ReadonlyArray<Uint8Array>) => {
  const hash = createHash("sha256")
  for (const part of parts) hash.update(part)
  return hash.digest()
}

/** Decodes the events of an entry. */
export const parseEvents = ({ events }: Pick<AuditEntry, "events">): ReadonlyArray<unknown> => {
  const parsed: unknown = JSON.parse(events)
  return Array.isArray(parsed) ? parsed : [parsed]
}
