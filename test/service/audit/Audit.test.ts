import { createHash } from "node:crypto"
import { Arbitrary, Effect, Option } from "effect"
import { Audit, AuditFault } from "../../../src/service/audit/Audit.ts"
import { type AuditCheckpoint, type AuditEntry, AuditLog } from "../../../src/port/AuditLog.ts"
import { bytes, elementOf, integer } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"

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
    // A part of a larger buffer, as the driver returns it.
    digests: new Uint8Array(padded.buffer, padded.byteOffset + 3, digests.length),
    hash: sha256(Buffer.from(before?.hash ?? "", "hex"), digests).toString("hex")
  }
}

/** An audit over a chain in memory, read in small pages. */
const auditOver = ({ checkpoints, entries }: Chain, page = 2, newest = checkpoints.at(-1)) =>
  Effect.provideService(Audit.make, AuditLog, {
    seal: () => Effect.succeed(Option.fromUndefinedOr(newest)),
    checkpointOf: (hash) => Effect.succeed(Option.fromUndefinedOr(checkpoints.find((one) => one.hash === hash))),
    checkpoints: (after) => Effect.succeed(checkpoints.filter(({ number }) => number > after).slice(0, page)),
    entries: ({ after, upTo }) =>
      Effect.succeed(entries.filter(({ seq }) => seq > after && seq <= upTo).slice(0, page)),
    read: () => Effect.die("not read"),
    find: () => Effect.succeedNone,
    countUnsealed: () =>
      Effect.succeed(entries.filter(({ seq }) => newest === undefined || seq > newest.last_seq).length)
  })

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
type Alteration = (chain: Chain, at: number) => readonly [Chain, AuditFault["kind"], bigint | undefined] | undefined

/** Replaces one sealed entry. */
const changingEntry =
  (kind: AuditFault["kind"], change: (entry: AuditEntry) => ReadonlyArray<AuditEntry>): Alteration =>
  (chain, at) => {
    const entry = sealedOf(chain)[at]
    if (entry === undefined) return
    const changed = change(entry)
    if (changed.length > 1 && chain.entries.some(({ seq }) => seq === changed[0]?.seq)) return
    const entries = chain.entries.flatMap((one) => (one === entry ? changed : [one]))
    return [{ ...chain, entries }, kind, (changed[0] ?? entry).seq]
  }

/** Changes one checkpoint, which may be the last one only if that is found without a hash kept elsewhere. */
const changingCheckpoint =
  (change: (one: AuditCheckpoint) => ReadonlyArray<AuditCheckpoint>, { butLast = false } = {}): Alteration =>
  (chain, at) => {
    if (at >= chain.checkpoints.length - (butLast ? 1 : 0)) return
    const checkpoints = chain.checkpoints.flatMap((one, index) => (index === at ? change(one) : [one]))
    return [{ ...chain, checkpoints }, "checkpoint", firstUnder(chain, at)]
  }

const alterations: Readonly<Record<string, Alteration>> = {
  "edits an entry": changingEntry("edited", (entry) => [{ ...entry, events: `${entry.events} ` }]),
  "dates an entry back": changingEntry("edited", (entry) => [{ ...entry, stamp: entry.stamp.map((byte) => byte ^ 1) }]),
  "removes an entry": changingEntry("removed", () => []),
  "inserts an entry": changingEntry("inserted", (entry) => [{ ...entry, seq: entry.seq - 1n }, entry]),
  "removes a checkpoint": changingCheckpoint(() => [], { butLast: true }),
  "edits a checkpoint's hash": changingCheckpoint((one) => [{ ...one, hash: "00".repeat(32) }]),
  "edits a checkpoint's digests": changingCheckpoint((one) => [
    { ...one, digests: one.digests.map((byte, place) => (place === 9 ? byte ^ 1 : byte)) }
  ]),
  "edits a checkpoint's last number": changingCheckpoint((one) => [{ ...one, last_seq: one.last_seq - 1n }], {
    butLast: true
  }),
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
  it.effect.prop("counts the entries and events of an unaltered log", [chain, page], function* ([given, size]) {
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

  it.effect.prop("counts only entries after the checkpoint of a given hash", [chain, page], function* ([given, size]) {
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

  for (const [what, alter] of Object.entries(alterations)) {
    it.effect.prop(
      `detects that somebody ${what}, and says where; given a checkpoint's hash, checks only what follows it`,
      [chain, page, elementOf([0, 1, 2, 3, 4])],
      function* ([given, size, at]) {
        const altered = alter(given, at)
        if (altered === undefined) return
        const [changed, kind, seq = 0n] = altered
        const audit = yield* auditOver(changed, size)
        const faultAfter = (hash?: string) =>
          Effect.map(audit.verify(undefined, hash), ({ fault }) => fault && { kind: fault.kind, seq: fault.seq })
        assert.deepStrictEqual(yield* faultAfter(), { kind, seq })
        for (const { hash, last_seq, number } of given.checkpoints) {
          const start = changed.checkpoints.find((one) => one.hash === hash)
          const fault = yield* faultAfter(hash)
          if (start === undefined) assert.strictEqual(fault?.kind, "rewritten")
          else if (start.last_seq !== last_seq || start.number !== number) continue
          else assert.deepStrictEqual(fault, seq > last_seq ? { kind, seq } : null)
        }
      }
    )
  }

  it.effect("ignores entries that are sealed after it began", function* () {
    const entry = (seq: bigint) => ({ seq, at: "now", stamp: Buffer.alloc(8), events: "[1]" })
    const [one, two] = [entry(1n), entry(2n)]
    const first = checkpointOver([one])
    const second = checkpointOver([two], first)
    const log = yield* auditOver({ entries: [one, two], checkpoints: [first, second] }, 2, first)
    const { entries, fault, head, unsealed } = yield* log.verify()
    assert.deepStrictEqual(
      { entries, fault, head, unsealed },
      { entries: 1, fault: null, head: first.hash, unsealed: 1 }
    )
  })

  it.effect.each([
    ["without entries", { digests: new Uint8Array() }, []],
    ["over entries that are all gone", { hash: "00".repeat(32) }, []]
  ] as const)("detects a checkpoint %s, and names the entry number where it begins", function* ([, change, left]) {
    const entry = { seq: 1n, at: "now", stamp: Buffer.alloc(8), events: "[1]" }
    const checkpoint = { ...checkpointOver([entry]), ...change }
    const { fault } = yield* (yield* auditOver({ entries: left, checkpoints: [checkpoint] })).verify()
    assert.deepStrictEqual({ kind: fault?.kind, seq: fault?.seq }, { kind: "checkpoint", seq: 1n - 2n ** 63n })
  })

  it.effect("detects the removal of the newest checkpoint", function* () {
    const entry = { seq: 1n, at: "now", stamp: Buffer.alloc(8), events: "[1]" }
    const first = checkpointOver([entry])
    const newest = { ...first, number: 2n, last_seq: 5n }
    const log = yield* auditOver({ entries: [entry], checkpoints: [first] }, 2, newest)
    const { fault } = yield* log.verify()
    assert.deepStrictEqual({ kind: fault?.kind, seq: fault?.seq }, { kind: "checkpoint", seq: 2n })
  })

  it("describes every kind of fault with the number of an entry", () => {
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
    "writes each sealed event after a given entry number once, in order, as a line of JSON",
    [chain, page, integer(-2, 12)],
    function* ([given, size, after]) {
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
    }
  )

  it.effect("writes one event for an entry that holds an object in place of a list", function* () {
    const entries = [{ seq: 1n, at: "now", stamp: Buffer.alloc(8), events: '{"n":1}' }]
    const audit = yield* auditOver({ entries, checkpoints: [checkpointOver(entries)] })
    const written: Array<string> = []
    yield* audit.export(0n, (lines) => Effect.sync(() => written.push(lines) > 0))
    assert.deepStrictEqual(written, ['{"seq":1,"at":"now","n":1}\n'])
  })

  it.effect("stops when its reader stops", function* () {
    const entries = [1n, 2n, 3n].map((seq) => ({ seq, at: "now", stamp: Buffer.alloc(8), events: `[{"n":${seq}}]` }))
    const audit = yield* auditOver({ entries, checkpoints: [checkpointOver(entries)] }, 1)
    const written: Array<string> = []
    yield* audit.export(0n, (lines) => Effect.sync(() => written.push(lines) < 2))
    assert.deepStrictEqual(written, ['{"seq":1,"at":"now","n":1}\n', '{"seq":2,"at":"now","n":2}\n'])
  })
})
