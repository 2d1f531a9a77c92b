import { Effect, Fiber, Option } from "effect"
import type { SqlClient } from "effect/sql"
import { Audit, type AuditReport } from "../../../src/service/audit/Audit.ts"
import { AuditLog } from "../../../src/port/AuditLog.ts"
import { openStore, storesOn } from "../../support/database/stores.ts"
import { holdOpen } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const open = Effect.gen(function* () {
  const { ports, sql, url } = yield* openStore
  return {
    sql,
    log: yield* Effect.provide(AuditLog, ports),
    audit: yield* Effect.provide(Audit.make, ports),
    another: Effect.flatMap(storesOn(url), (ports) => Effect.provide(AuditLog, ports))
  }
})

const write = (sql: SqlClient.SqlClient, n: number) =>
  sql`INSERT INTO audit_entries (events) VALUES (${JSON.stringify([{ n }, { n: -n }])}::json)`

const found = ({ fault }: AuditReport) => (fault === null ? "intact" : `${fault.kind} ${fault.seq}`)

const bytes = "int8send(seq) || timestamptz_send(at) || convert_to(events::text, 'UTF8')"

describe("verifying the audit log on PostgreSQL (SECURITY.md, Audit)", () => {
  it.live("cannot detect changes to entries without a checkpoint, and counts those as unsealed", function* () {
    const { audit, log, sql } = yield* open
    const commit = yield* holdOpen(sql, "INSERT INTO audit_entries (events) VALUES ('[1]')")
    for (const n of [1, 2]) yield* write(sql, n)
    yield* log.seal(0)
    yield* sql`DELETE FROM audit_entries WHERE seq = 2`
    yield* sql`UPDATE audit_entries SET events = '[]' WHERE seq = 3`
    assert.strictEqual(yield* log.countUnsealed(), 1)
    yield* commit
    const { fault, last_at, last_seq, unsealed } = yield* audit.verify()
    assert.deepStrictEqual({ fault, last_seq, unsealed }, { fault: null, last_seq: 3, unsealed: 0 })
    assert.match(last_at ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  })
})

describe("checkpoints on PostgreSQL (SECURITY.md, Audit)", () => {
  it.live("wait for open transactions that may commit an entry with a lower number, and for no others", function* () {
    const { audit, log, sql } = yield* open
    yield* write(sql, 1)
    yield* Effect.asVoid(holdOpen(sql, "CREATE TABLE something_else ()"))
    const commit = yield* holdOpen(sql, "INSERT INTO audit_entries (events) VALUES ('[2]')")
    yield* write(sql, 3)
    assert.isTrue(Option.isNone(yield* log.seal(0)), "nothing that might be read out of order is sealed")
    const verified = yield* Effect.forkChild(audit.verify())
    yield* commit
    const { entries, fault, last_seq, unsealed } = yield* Fiber.join(verified)
    assert.deepStrictEqual(
      { entries, fault, last_seq, unsealed },
      { entries: 3, fault: null, last_seq: 3, unsealed: 0 }
    )
    assert.deepStrictEqual(
      Option.map(yield* log.seal(0), ({ last_seq }) => last_seq),
      Option.some(3n)
    )
  })

  it.live("would make verify report a late entry as inserted if they did not wait (control)", function* () {
    const { audit, sql } = yield* open
    const commit = yield* holdOpen(sql, "INSERT INTO audit_entries (events) VALUES ('[1]')")
    yield* write(sql, 2)
    yield* sql.unsafe(`
        INSERT INTO audit_checkpoints SELECT 1, seq, made, sha256(made)
        FROM audit_entries, LATERAL (SELECT int8send(seq) || sha256(${bytes}) AS made) AS digest`)
    yield* commit
    assert.strictEqual(found(yield* audit.verify()), "inserted 1")
  })

  it.live("cover every entry exactly once, even if two instances seal while writers commit in any order", function* () {
    const { another, audit, log, sql } = yield* open
    const logs = [log, yield* another]
    const writer = (n: number) =>
      Effect.gen(function* () {
        yield* write(sql, n)
        yield* sql`SELECT pg_sleep(${(n % 5) / 200})`
        if (n % 7 === 0) return yield* Effect.fail("rolled back" as const)
      }).pipe(
        sql.withTransaction,
        Effect.catchIf(
          (error) => error === "rolled back",
          () => Effect.void
        )
      )
    const writing = yield* Effect.forkChild(
      Effect.forEach(Array.from({ length: 200 }), (_, n) => writer(n), { concurrency: 4, discard: true })
    )
    const sealing = yield* Effect.forkChild(
      Effect.forEach(logs, ({ seal }) => Effect.forever(seal(5000)), { concurrency: "unbounded" })
    )
    yield* Fiber.join(writing)
    yield* Fiber.interrupt(sealing)
    const { entries, events, fault, unsealed } = yield* audit.verify()
    assert.deepStrictEqual(
      { entries, events, fault, unsealed },
      { entries: 171, events: 342, fault: null, unsealed: 0 }
    )
    const made = yield* sql<{ number: number }>`SELECT number::int AS number FROM audit_checkpoints ORDER BY number`
    assert.deepStrictEqual(
      made.map(({ number }) => number),
      made.map((_, index) => index + 1)
    )
    assert.isAtLeast(made.length, 2)
  })

  it.live("cover at most 200 entries, fewer if entries are long, and let verify find a removed entry", function* () {
    const { audit, sql } = yield* open
    yield* sql`INSERT INTO audit_entries (events) SELECT '[1]' FROM generate_series(1, 250)`
    yield* sql`
        INSERT INTO audit_entries (events)
        SELECT json_build_array((SELECT string_agg(md5(n::text || i), '') FROM generate_series(1, 300) AS i))
        FROM generate_series(1, 20) AS n`
    const { entries, fault } = yield* audit.verify()
    assert.deepStrictEqual({ entries, fault }, { entries: 270, fault: null })
    const sizes = yield* sql<{ n: number }>`SELECT length(digests) / 40 AS n FROM audit_checkpoints ORDER BY number`
    assert.strictEqual(sizes[0]?.n, 200)
    assert.isAbove(sizes.length, 2)
    yield* sql`DELETE FROM audit_entries WHERE seq = 201`
    assert.strictEqual(found(yield* audit.verify()), "removed 201")
  })
})
