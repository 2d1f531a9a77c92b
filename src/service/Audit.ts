import { createHash } from "node:crypto"
import { Context, Data, Effect, Layer, Option } from "effect"
import { type AuditCheckpoint, type AuditEntry, AuditLog } from "../port/AuditLog.ts"

/** What is not as it was sealed: the first of it, in the order of `seq`. */
export class AuditFault extends Data.TaggedError("AuditFault")<{
  readonly kind: "edited" | "removed" | "inserted" | "checkpoint" | "rewritten"
  readonly seq: bigint
}> {
  override get message() {
    switch (this.kind) {
      case "checkpoint":
        return `The checkpoint over audit entry ${this.seq} was edited or removed.`
      case "rewritten":
        return `No checkpoint up to audit entry ${this.seq} has the expected hash: entries were removed from the end, or the chain was made anew.`
      default:
        return `Audit entry ${this.seq} was ${this.kind}.`
    }
  }
}

export interface AuditReport {
  /** Entries and their events that are as they were sealed. */
  readonly entries: number
  readonly events: number
  /** The last of these entries. */
  readonly last_seq: number | null
  readonly last_at: string | null
  /** Entries that no checkpoint covers yet. */
  readonly unsealed: number
  /** Hash of the newest checkpoint that was checked: whoever keeps it elsewhere can later expect it. */
  readonly head: string | null
  readonly fault: AuditFault | null
}

/** Below every number that an entry can have. */
const lowest = -(2n ** 63n)

/** How long to wait for transactions that are writing, in milliseconds. */
const patience = 5000

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

const eventsOf = ({ events }: AuditEntry): ReadonlyArray<unknown> => {
  const parsed: unknown = JSON.parse(events)
  return Array.isArray(parsed) ? parsed : [parsed]
}

/** Shows what was done, and whether the record of it is as it was written. */
export class Audit extends Context.Service<Audit>()("byok/Audit", {
  make: Effect.gen(function* () {
    const log = yield* AuditLog

    /** Goes through the entries one by one, with a page of them in memory at a time. */
    const walk = (upTo: bigint) => {
      let page: ReadonlyArray<AuditEntry> = []
      let index = 0
      let after = lowest
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

    const verify = Effect.fn("Audit.verify")(function* (expected?: string) {
      const newest = yield* log.seal(patience)
      const target = Option.getOrElse(newest, () => ({ number: 0n, last_seq: lowest, hash: "" }))
      const entries = walk(target.last_seq)
      let before = { number: 0n, last_seq: lowest, hash: "" }
      let met = expected === undefined
      let last: AuditEntry | undefined
      const counted = { entries: 0, events: 0 }

      const checkSealed = Effect.fnUntraced(function* (checkpoint: AuditCheckpoint) {
        const digests = digestsOf(checkpoint)
        const hash = sha256(Buffer.from(before.hash, "hex"), checkpoint.digests).toString("hex")
        const intact =
          checkpoint.hash === hash &&
          checkpoint.number === before.number + 1n &&
          checkpoint.last_seq === digests.at(-1)?.seq
        if (!intact) {
          const next = yield* entries.current
          return yield* new AuditFault({ kind: "checkpoint", seq: next?.seq ?? before.last_seq + 1n })
        }
        for (const { digest, seq } of digests) {
          const entry = yield* entries.current
          if (entry === undefined || entry.seq > seq) return yield* new AuditFault({ kind: "removed", seq })
          if (entry.seq < seq) return yield* new AuditFault({ kind: "inserted", seq: entry.seq })
          if (!digest.equals(digestOf(entry))) return yield* new AuditFault({ kind: "edited", seq })
          counted.entries += 1
          counted.events += eventsOf(entry).length
          last = entry
          entries.next()
        }
        before = { number: checkpoint.number, last_seq: checkpoint.last_seq, hash }
        met ||= hash === expected
      })

      const check = Effect.gen(function* () {
        let number = lowest
        while (before.number < target.number) {
          const page = yield* log.checkpoints(number)
          if (page.length === 0) return yield* new AuditFault({ kind: "checkpoint", seq: before.last_seq + 1n })
          for (const checkpoint of page) {
            if (before.number < target.number) yield* checkSealed(checkpoint)
            number = checkpoint.number
          }
        }
        if (!met) return yield* new AuditFault({ kind: "rewritten", seq: before.last_seq })
      })

      const fault = yield* check.pipe(
        Effect.as(null),
        Effect.catchTag("AuditFault", (found) => Effect.succeed(found))
      )
      return {
        ...counted,
        last_seq: last === undefined ? null : Number(last.seq),
        last_at: last?.at ?? null,
        unsealed: yield* log.countAfter(target.last_seq),
        head: before.hash === "" ? null : before.hash,
        fault
      } satisfies AuditReport
    })

    return {
      /** Reads every sealed entry again. `expected` is the hash of a checkpoint that was kept elsewhere. */
      verify,

      /**
       * Hands the events of every sealed entry after `after` to `write`, a page of lines of JSON at a time, until it answers
       * false. What is not sealed yet comes with a later export, so that none is ever missed. Answers with the head.
       */
      export: Effect.fn("Audit.export")(function* <E>(
        after: bigint,
        write: (lines: string) => Effect.Effect<boolean, E>
      ) {
        const head = yield* log.seal(patience)
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
