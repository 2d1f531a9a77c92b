import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Option } from "effect"
import { Audit, AuditFault } from "../../src/service/Audit.ts"
import { type AuditCheckpoint, type AuditEntry, AuditLog } from "../../src/port/AuditLog.ts"
import { bytes, elementOf, integer } from "../support/memory/arbitraries.ts"

interface Chain {
  readonly entries: ReadonlyArray<AuditEntry>
  readonly checkpoints: ReadonlyArray<AuditCheckpoint>
}

const sha256 = (...parts: ReadonlyArray<Uint8Array>) => createHash("sha256").update(Buffer.concat(parts)).digest()
const int8 = (value: bigint) => {
  const number = Buffer.alloc(8)
  number.writeBigInt64BE(value)
  return number
}

/** The checkpoint that follows, made without the code under test. */
const checkpointOver = (entries: ReadonlyArray<AuditEntry>, before?: AuditCheckpoint): AuditCheckpoint => {
  const digests = Buffer.concat(
    entries.flatMap(({ events, seq, stamp }) => [int8(seq), sha256(int8(seq), stamp, Buffer.from(events))])
  )
  const padded = Buffer.concat([Buffer.alloc(3), digests])
  return {
    number: (before?.number ?? 0n) + 1n,
    last_seq: entries.at(-1)?.seq ?? 0n,
    // As the driver hands it out: a part of a larger buffer.
    digests: new Uint8Array(padded.buffer, padded.byteOffset + 3, digests.length),
    hash: sha256(Buffer.from(before?.hash ?? "", "hex"), digests).toString("hex")
  }
}

/** A log of what there is, read a few at a time. */
const auditOver = ({ checkpoints, entries }: Chain, page = 2) => {
  const newest = checkpoints.at(-1)
  return Effect.provideService(Audit.make, AuditLog, {
    seal: () => Effect.succeed(Option.fromUndefinedOr(newest)),
    checkpointOf: (hash) => Effect.succeed(Option.fromUndefinedOr(checkpoints.find((one) => one.hash === hash))),
    checkpoints: (after) => Effect.succeed(checkpoints.filter(({ number }) => number > after).slice(0, page)),
    entries: ({ after, upTo }) =>
      Effect.succeed(entries.filter(({ seq }) => seq > after && seq <= upTo).slice(0, page)),
    countAfter: (after) => Effect.succeed(entries.filter(({ seq }) => seq > after).length),
    unsealed: () => Effect.succeed(0)
  })
}

/** Entries with gaps among them, some under checkpoints of one to three, and some that are not sealed yet. */
const chain: Arbitrary.Arbitrary<Chain> = Arbitrary.map(
  Arbitrary.all({
    given: Arbitrary.array(Arbitrary.all({ gap: integer(1, 3), events: integer(0, 3), stamp: bytes(8, 8) }), {
      maxLength: 9
    }),
    sizes: Arbitrary.array(integer(1, 3), { maxLength: 4 })
  }),
  ({ given, sizes }) => {
    let seq = -1n
    const entries = given.map(({ events, gap, stamp }) => {
      seq += BigInt(gap)
      const list = Array.from({ length: events }, (_, n) => ({ n: `${seq}é${n}` }))
      return { seq, at: `at ${seq}`, stamp, events: JSON.stringify(list) }
    })
    const checkpoints: Array<AuditCheckpoint> = []
    let sealed = 0
    for (const size of sizes) {
      const next = entries.slice(sealed, sealed + size)
      if (next.length > 0) checkpoints.push(checkpointOver(next, checkpoints.at(-1)))
      sealed += size
    }
    return { entries, checkpoints }
  }
)
const page = integer(1, 4)

const sealedOf = ({ checkpoints, entries }: Chain) =>
  entries.filter(({ seq }) => seq <= (checkpoints.at(-1)?.last_seq ?? -1n))
const countOf = (entries: ReadonlyArray<AuditEntry>) =>
  entries.reduce((sum, { events }) => sum + (JSON.parse(events) as ReadonlyArray<unknown>).length, 0)

/** The first entry under the checkpoint at an index. */
const firstUnder = ({ checkpoints, entries }: Chain, index: number) =>
  entries.find(({ seq }) => seq > (checkpoints[index - 1]?.last_seq ?? -100n))?.seq

/** A change to a sealed chain and the fault to report, or none if the chain has nothing to change. */
const alterations: Readonly<
  Record<string, (chain: Chain, at: number) => readonly [Chain, AuditFault["kind"], bigint | undefined] | undefined>
> = {
  "edits an entry": (chain, at) => {
    const entry = sealedOf(chain)[at]
    if (entry === undefined) return
    const entries = chain.entries.map((one) => (one === entry ? { ...one, events: `${one.events} ` } : one))
    return [{ ...chain, entries }, "edited", entry.seq]
  },
  "dates an entry back": (chain, at) => {
    const entry = sealedOf(chain)[at]
    if (entry === undefined) return
    const stamp = entry.stamp.map((byte) => byte ^ 1)
    return [
      { ...chain, entries: chain.entries.map((one) => (one === entry ? { ...one, stamp } : one)) },
      "edited",
      entry.seq
    ]
  },
  "removes an entry": (chain, at) => {
    const entry = sealedOf(chain)[at]
    if (entry === undefined) return
    return [{ ...chain, entries: chain.entries.filter((one) => one !== entry) }, "removed", entry.seq]
  },
  "inserts an entry": (chain, at) => {
    const entry = sealedOf(chain)[at]
    if (entry === undefined || chain.entries.some(({ seq }) => seq === entry.seq - 1n)) return
    const inserted = { ...entry, seq: entry.seq - 1n }
    const entries = chain.entries.flatMap((one) => (one === entry ? [inserted, one] : [one]))
    return [{ ...chain, entries }, "inserted", inserted.seq]
  },
  "removes a checkpoint": (chain, at) => {
    if (at >= chain.checkpoints.length - 1) return
    const checkpoints = chain.checkpoints.filter((_, index) => index !== at)
    return [{ ...chain, checkpoints }, "checkpoint", firstUnder(chain, at)]
  },
  "edits a checkpoint's hash": (chain, at) => {
    const checkpoints = chain.checkpoints.map((one, index) => (index === at ? { ...one, hash: "00".repeat(32) } : one))
    return at < checkpoints.length ? [{ ...chain, checkpoints }, "checkpoint", firstUnder(chain, at)] : undefined
  },
  "edits a checkpoint's digests": (chain, at) => {
    const checkpoints = chain.checkpoints.map((one, index) =>
      index === at ? { ...one, digests: one.digests.map((byte, place) => (place === 9 ? byte ^ 1 : byte)) } : one
    )
    return at < checkpoints.length ? [{ ...chain, checkpoints }, "checkpoint", firstUnder(chain, at)] : undefined
  },
  "edits a checkpoint's last number": (chain, at) => {
    const checkpoints = chain.checkpoints.map((one, index) =>
      index === at ? { ...one, last_seq: one.last_seq - 1n } : one
    )
    return at < checkpoints.length - 1 ? [{ ...chain, checkpoints }, "checkpoint", firstUnder(chain, at)] : undefined
  },
  "renumbers a checkpoint": (chain, at) => {
    const checkpoints = chain.checkpoints.map((one, index) => (index >= at ? { ...one, number: one.number + 1n } : one))
    return at < checkpoints.length ? [{ ...chain, checkpoints }, "checkpoint", firstUnder(chain, at)] : undefined
  },
  "forges an entry with its checkpoint": (chain, at) => {
    const [first, second] = chain.checkpoints
    if (first === undefined || second === undefined || at > 0) return
    const entries = chain.entries.map((one, index) => (index === 0 ? { ...one, events: "[]  " } : one))
    const forged = checkpointOver(entries.filter(({ seq }) => seq <= first.last_seq))
    const checkpoints = [forged, ...chain.checkpoints.slice(1)]
    return [{ entries, checkpoints }, "checkpoint", firstUnder(chain, 1)]
  }
}

describe("verifying the audit log (SECURITY.md, Audit)", () => {
  it.effect.prop("counts the entries of any untouched log", [chain, page], ([given, size]) =>
    Effect.gen(function* () {
      const audit = yield* auditOver(given, size)
      const sealed = sealedOf(given)
      const report = {
        entries: sealed.length,
        events: countOf(sealed),
        last_seq: sealed.length === 0 ? null : Number(sealed.at(-1)?.seq),
        last_at: sealed.at(-1)?.at ?? null,
        unsealed: given.entries.length - sealed.length,
        head: given.checkpoints.at(-1)?.hash ?? null,
        fault: null
      }
      assert.deepStrictEqual(yield* audit.verify(), report)
      for (const { hash } of given.checkpoints) assert.deepStrictEqual(yield* audit.verify(hash), report)
      const { fault } = yield* audit.verify("00".repeat(32))
      assert.strictEqual(fault?.kind, "rewritten")
      if (sealed.length > 0) assert.strictEqual(fault?.seq, sealed.at(-1)?.seq)
    })
  )

  it.effect.prop("counts only what came after a hash that was kept", [chain, page], ([given, size]) =>
    Effect.gen(function* () {
      const audit = yield* auditOver(given, size)
      const whole = yield* audit.verify()
      for (const { hash, last_seq } of given.checkpoints) {
        const later = sealedOf(given).filter(({ seq }) => seq > last_seq)
        const last = later.at(-1)
        const report = yield* audit.verify(whole.head ?? undefined, hash)
        assert.deepStrictEqual(report, {
          ...whole,
          entries: later.length,
          events: countOf(later),
          last_seq: last === undefined ? null : Number(last.seq),
          last_at: last?.at ?? null
        })
      }
      assert.strictEqual((yield* audit.verify(undefined, "00".repeat(32))).fault?.kind, "rewritten")
    })
  )

  for (const [what, alter] of Object.entries(alterations)) {
    it.effect.prop(
      `finds whoever ${what} after a hash that was kept, and nothing before it`,
      [chain, page, elementOf([0, 1, 2, 3, 4])],
      ([given, size, at]) =>
        Effect.gen(function* () {
          const altered = alter(given, at)
          if (altered === undefined) return
          const [changed, kind, seq = 0n] = altered
          const audit = yield* auditOver(changed, size)
          for (const { hash, last_seq, number } of given.checkpoints) {
            const { fault } = yield* audit.verify(undefined, hash)
            const start = changed.checkpoints.find((one) => one.hash === hash)
            if (start === undefined) assert.strictEqual(fault?.kind, "rewritten")
            else if (start.last_seq !== last_seq || start.number !== number) continue
            else if (seq > last_seq) assert.deepStrictEqual({ kind: fault?.kind, seq: fault?.seq }, { kind, seq })
            else assert.isNull(fault)
          }
        })
    )

    it.effect.prop(
      `finds whoever ${what}, and names the place`,
      [chain, page, elementOf([0, 1, 2, 3, 4])],
      ([given, size, at]) =>
        Effect.gen(function* () {
          const altered = alter(given, at)
          if (altered === undefined) return
          const [changed, kind, seq] = altered
          const { fault } = yield* (yield* auditOver(changed, size)).verify()
          assert.deepStrictEqual({ kind: fault?.kind, seq: fault?.seq }, { kind, seq })
        })
    )
  }

  it.effect("covers only what was written before: later entries do not disturb it", () =>
    Effect.gen(function* () {
      const entry = (seq: bigint) => ({ seq, at: "now", stamp: Buffer.alloc(8), events: "[1]" })
      const [one, two] = [entry(1n), entry(2n)]
      const first = checkpointOver([one])
      const second = checkpointOver([two], first)
      const log = yield* Effect.provideService(Audit.make, AuditLog, {
        seal: () => Effect.succeed(Option.some(first)),
        checkpointOf: () => Effect.succeedNone,
        checkpoints: () => Effect.succeed([first, second]),
        entries: ({ after, upTo }) => Effect.succeed([one, two].filter(({ seq }) => seq > after && seq <= upTo)),
        countAfter: () => Effect.succeed(1),
        unsealed: () => Effect.succeed(0)
      })
      const { entries, fault, head, unsealed } = yield* log.verify()
      assert.deepStrictEqual(
        { entries, fault, head, unsealed },
        { entries: 1, fault: null, head: first.hash, unsealed: 1 }
      )
    })
  )

  it.effect.each([
    ["without entries", { digests: new Uint8Array() }, []],
    ["over entries that are all gone", { hash: "00".repeat(32) }, []]
  ] as const)("finds a checkpoint %s, and names the number after the previous one", ([, change, left]) =>
    Effect.gen(function* () {
      const entry = { seq: 1n, at: "now", stamp: Buffer.alloc(8), events: "[1]" }
      const checkpoint = { ...checkpointOver([entry]), ...change }
      const { fault } = yield* (yield* auditOver({ entries: left, checkpoints: [checkpoint] })).verify()
      assert.deepStrictEqual({ kind: fault?.kind, seq: fault?.seq }, { kind: "checkpoint", seq: 1n - 2n ** 63n })
    })
  )

  it.effect("finds that the newest checkpoint has been removed", () =>
    Effect.gen(function* () {
      const entry = { seq: 1n, at: "now", stamp: Buffer.alloc(8), events: "[1]" }
      const first = checkpointOver([entry])
      const log = yield* Effect.provideService(Audit.make, AuditLog, {
        seal: () => Effect.succeed(Option.some({ ...first, number: 2n, last_seq: 5n })),
        checkpointOf: () => Effect.succeedNone,
        checkpoints: (after) => Effect.succeed([first].filter(({ number }) => number > after)),
        entries: ({ after }) => Effect.succeed([entry].filter(({ seq }) => seq > after)),
        countAfter: () => Effect.succeed(0),
        unsealed: () => Effect.succeed(0)
      })
      const { fault } = yield* log.verify()
      assert.deepStrictEqual({ kind: fault?.kind, seq: fault?.seq }, { kind: "checkpoint", seq: 2n })
    })
  )

  it("gives the place of every fault", () => {
    assert.deepStrictEqual(
      (["edited", "removed", "inserted", "checkpoint", "rewritten"] as const).map(
        (kind) => new AuditFault({ kind, seq: 7n }).message
      ),
      [
        "Audit entry 7 was edited.",
        "Audit entry 7 was removed.",
        "Audit entry 7 was inserted.",
        "The checkpoint over audit entry 7 was edited or removed.",
        "No checkpoint up to audit entry 7 has the expected hash: entries were removed from the end, or the chain was rebuilt."
      ]
    )
  })
})

describe("exporting the audit log (SECURITY.md, Audit)", () => {
  it.effect.prop(
    "writes each sealed event after a number once, in order, as a line of JSON",
    [chain, page, integer(-2, 12)],
    ([given, size, after]) =>
      Effect.gen(function* () {
        const written: Array<string> = []
        const audit = yield* auditOver(given, size)
        const head = yield* audit.export(BigInt(after), (lines) => Effect.sync(() => written.push(lines) > 0))
        assert.deepStrictEqual(head, Option.fromUndefinedOr(given.checkpoints.at(-1)))
        const expected = sealedOf(given)
          .filter(({ seq }) => seq > after)
          .flatMap(({ at, events, seq }) =>
            (JSON.parse(events) as ReadonlyArray<object>).map((event) => ({ seq: Number(seq), at, ...event }))
          )
        assert.strictEqual(written.join(""), expected.map((line) => `${JSON.stringify(line)}\n`).join(""))
      })
  )

  it.effect("writes an entry that was edited into something other than a list as one event", () =>
    Effect.gen(function* () {
      const entries = [{ seq: 1n, at: "now", stamp: Buffer.alloc(8), events: '{"n":1}' }]
      const audit = yield* auditOver({ entries, checkpoints: [checkpointOver(entries)] })
      const written: Array<string> = []
      yield* audit.export(0n, (lines) => Effect.sync(() => written.push(lines) > 0))
      assert.deepStrictEqual(written, ['{"seq":1,"at":"now","n":1}\n'])
    })
  )

  it.effect("stops when its reader stops", () =>
    Effect.gen(function* () {
      const entries = [1n, 2n, 3n].map((seq) => ({ seq, at: "now", stamp: Buffer.alloc(8), events: `[{"n":${seq}}]` }))
      const audit = yield* auditOver({ entries, checkpoints: [checkpointOver(entries)] }, 1)
      const written: Array<string> = []
      yield* audit.export(0n, (lines) => Effect.sync(() => written.push(lines) < 2))
      assert.deepStrictEqual(written, ['{"seq":1,"at":"now","n":1}\n', '{"seq":2,"at":"now","n":2}\n'])
    })
  )
})
