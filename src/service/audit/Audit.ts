import { createHash } from "node:crypto"
import { Context, Data, Effect, Layer, Option } from "effect"
import { type AuditCheckpoint, type AuditEntry, type AuditHead, AuditLog } from "../../port/AuditLog.ts"

/** The first deviation from the sealed log, in order of `seq`. */
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

/** Below the number of every entry and checkpoint. */
const lowest = -(2n ** 63n)

/** The head before the first checkpoint. */
const beginning: AuditHead = { number: 0n, last_seq: lowest, hash: "" }

/** How long to wait for writing transactions, in milliseconds. */
const sealTimeout = 5000

const sha256 = (...parts: ReadonlyArray<Uint8Array>) => {
  const hash = createHash("sha256")
  for (const part of parts) hash.update(part)
  return hash.digest()
}

const digestsOf = ({ digests }: AuditCheckpoint) => {
  const all = Buffer.from(digests.buffer, digests.byteOffset, digests.length)
  return Array.from({ length: Math.floor(all.length / 40) }, (_, index) => ({
    seq: all.readBigInt64BE(40 * index),
    digest: all.subarray(40 * index + 8, 40 * index + 40)
  }))
}

const digestOf = ({ events, seq, stamp }: AuditEntry) => {
  const number = Buffer.alloc(8)
  number.writeBigInt64BE(seq)
  return sha256(number, stamp, Buffer.from(events))
}

export const eventsOf = ({ events }: Pick<AuditEntry, "events">): ReadonlyArray<unknown> => {
  const parsed: unknown = JSON.parse(events)
  return Array.isArray(parsed) ? parsed : [parsed]
}

export type AuditReport = Effect.Success<ReturnType<Audit["Service"]["verify"]>>

/** Exports and verifies the audit log. */
export class Audit extends Context.Service<Audit>()("byok/Audit", {
  make: Effect.gen(function* () {
    const log = yield* AuditLog

    /** Iterates over the entries with one page in memory. */
    const walk = (from: bigint, upTo: bigint) => {
      let page: ReadonlyArray<AuditEntry> = []
      let index = 0
      let after = from
      return {
        next: () => void (index += 1),
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
      const newest = yield* log.seal(sealTimeout)
      const target = Option.getOrElse(newest, () => beginning)
      const start = from === undefined ? Option.some(beginning) : yield* log.checkpointOf(from)
      let previous: AuditHead = Option.getOrElse(start, () => beginning)
      const entries = walk(previous.last_seq, target.last_seq)
      let sawExpected = expected === undefined || expected === from
      let last: AuditEntry | undefined
      const counts = { entries: 0, events: 0 }

      const checkSealed = Effect.fnUntraced(function* (checkpoint: AuditCheckpoint) {
        const digests = digestsOf(checkpoint)
        const hash = sha256(Buffer.from(previous.hash, "hex"), checkpoint.digests).toString("hex")
        const intact =
          checkpoint.hash === hash &&
          checkpoint.number === previous.number + 1n &&
          checkpoint.last_seq === digests.at(-1)?.seq
        if (!intact) {
          const next = yield* entries.current
          return yield* new AuditFault({ kind: "checkpoint", seq: next?.seq ?? previous.last_seq + 1n })
        }
        for (const { digest, seq } of digests) {
          const entry = yield* entries.current
          if (entry === undefined || entry.seq > seq) return yield* new AuditFault({ kind: "removed", seq })
          if (entry.seq < seq) return yield* new AuditFault({ kind: "inserted", seq: entry.seq })
          if (!digest.equals(digestOf(entry))) return yield* new AuditFault({ kind: "edited", seq })
          counts.entries += 1
          counts.events += eventsOf(entry).length
          last = entry
          entries.next()
        }
        previous = { number: checkpoint.number, last_seq: checkpoint.last_seq, hash }
        sawExpected ||= hash === expected
      })

      const check = Effect.gen(function* () {
        if (Option.isNone(start)) return yield* new AuditFault({ kind: "rewritten", seq: target.last_seq })
        let number = from === undefined ? lowest : previous.number
        while (previous.number < target.number) {
          const page = yield* log.checkpoints(number)
          if (page.length === 0) return yield* new AuditFault({ kind: "checkpoint", seq: previous.last_seq + 1n })
          for (const checkpoint of page) {
            if (previous.number < target.number) yield* checkSealed(checkpoint)
            number = checkpoint.number
          }
        }
        if (!sawExpected) return yield* new AuditFault({ kind: "rewritten", seq: previous.last_seq })
      })

      const fault = yield* check.pipe(
        Effect.as(null),
        Effect.catchTag("AuditFault", (error) => Effect.succeed(error))
      )
      return {
        /** Number of intact entries and their events, and the last intact entry. */
        ...counts,
        last_seq: last === undefined ? null : Number(last.seq),
        last_at: last?.at ?? null,
        unsealed: yield* log.countUnsealed(),
        /** Hash of the newest verified checkpoint. Keep it elsewhere and pass it to a later `verify`. */
        head: previous.hash === "" ? null : previous.hash,
        fault
      }
    })

    return {
      /** Verifies the sealed entries, after checkpoint `from` if set. Callers keep both hashes elsewhere. */
      verify,

      /**
       * Passes the events of sealed entries after `after` to `write`, one page of JSON lines at a time, until it returns
       * false. Returns the head. A later export misses none of the unsealed entries.
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
            eventsOf(entry).map(
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
