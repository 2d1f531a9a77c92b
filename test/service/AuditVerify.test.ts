import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Fiber, Layer, Logger, Option, References } from "effect"
import { TestClock } from "effect/testing"
import type { SqlClient } from "effect/sql"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { Audit, type AuditReport } from "../../src/service/Audit.ts"
import { type AuditHead, AuditLog } from "../../src/service/AuditLog.ts"
import * as Checkpointing from "../../src/service/Checkpointing.ts"
import { elementOf, integer } from "../support/arbitraries.ts"
import { openStore } from "../support/auditing.ts"
import { holdOpen } from "../support/transactions.ts"

const open = Effect.gen(function* () {
  const { build, ports, sql } = yield* openStore()
  const audit = Effect.map(Effect.provide(Audit.make, ports), (made) => made)
  return {
    sql,
    log: yield* Effect.provide(AuditLog, ports),
    audit: yield* audit,
    another: Effect.provide(AuditLog, yield* build)
  }
})

const write = (sql: SqlClient.SqlClient, n: number) =>
  sql`INSERT INTO audit_entries (events) VALUES (${JSON.stringify([{ n }, { n: -n }])}::json)`

/** A number that no entry has, as a transaction leaves behind that is rolled back. */
const skip = (sql: SqlClient.SqlClient) => sql`SELECT nextval(pg_get_serial_sequence('audit_entries', 'seq'))`

const found = ({ fault }: AuditReport) => (fault === null ? "intact" : `${fault.kind} ${fault.seq}`)

const tables = ["audit_entries", "audit_checkpoints"]
const keep = (sql: SqlClient.SqlClient) =>
  Effect.forEach(tables, (table) => sql.unsafe(`CREATE TABLE kept_${table} AS SELECT * FROM ${table}`))
const restore = (sql: SqlClient.SqlClient) =>
  Effect.forEach(tables, (table) =>
    Effect.andThen(
      sql.unsafe(`DELETE FROM ${table}`),
      sql.unsafe(`INSERT INTO ${table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_${table}`)
    )
  )

/** Ten entries with gaps among them, under four checkpoints: entries 1 3 | 4 6 7 | 9 10 11 | 13 14. */
const tenEntries = Effect.gen(function* () {
  const { audit, log, sql, ...rest } = yield* open
  const seqs = [1, 3, 4, 6, 7, 9, 10, 11, 13, 14]
  for (let seq = 1; seq <= 14; seq++) {
    yield* seqs.includes(seq) ? write(sql, seq) : skip(sql)
    if ([3, 7, 11, 14].includes(seq)) yield* log.seal(0)
  }
  assert.deepStrictEqual(
    (yield* sql<{ seq: number }>`SELECT seq::int AS seq FROM audit_entries ORDER BY seq`).map(({ seq }) => seq),
    seqs
  )
  assert.deepStrictEqual(
    (yield* sql<{ seq: number }>`SELECT last_seq::int AS seq FROM audit_checkpoints ORDER BY number`).map(
      ({ seq }) => seq
    ),
    [3, 7, 11, 14]
  )
  yield* keep(sql)
  return { audit, log, sql, seqs, ...rest }
})

const seqs = [1, 3, 4, 6, 7, 9, 10, 11, 13, 14]
/** The checkpoint that covers a number: the first entry under it is named when it does not fit. */
const firstUnder = (number: number) => [1, 4, 9, 13][number - 1] ?? assert.fail("no such checkpoint")

interface Tampering {
  readonly statements: ReadonlyArray<string>
  readonly found: string
}
const kinds = [
  "edit",
  "respace",
  "date",
  "remove",
  "insert",
  "append",
  "swap",
  "renumber",
  "hash",
  "digest",
  "checkpoint",
  "both"
] as const
/** A way to falsify entries or checkpoints, and what is to be told of it. */
const tampering: Arbitrary.Arbitrary<Tampering> = Arbitrary.map(
  Arbitrary.all({ kind: elementOf(kinds), index: integer(0, 9), other: integer(0, 9), number: integer(1, 3) }),
  ({ index, kind, number, other }): Tampering => {
    const seq = seqs[index] ?? 0
    const next = seqs[index === other ? (other + 1) % 10 : other] ?? 0
    const gap = [2, 5, 8, 12, 0, -1, -(2 ** 40)][other % 7] ?? 0
    const entry = `UPDATE audit_entries SET`
    const checkpoint = `UPDATE audit_checkpoints SET`
    const end = `WHERE seq = ${seq}`
    switch (kind) {
      case "edit":
        return { statements: [`${entry} events = '[{"n":0}]' ${end}`], found: `edited ${seq}` }
      case "respace":
        return { statements: [`${entry} events = (events::text || ' ')::json ${end}`], found: `edited ${seq}` }
      case "date":
        return { statements: [`${entry} at = at + interval '1 millisecond' ${end}`], found: `edited ${seq}` }
      case "remove":
        return { statements: [`DELETE FROM audit_entries ${end}`], found: `removed ${seq}` }
      case "insert":
      case "append":
        return {
          statements: [`INSERT INTO audit_entries (seq, events) OVERRIDING SYSTEM VALUE VALUES (${gap}, '[]')`],
          found: `inserted ${gap}`
        }
      case "swap":
        return {
          statements: [
            `UPDATE audit_entries SET events = (SELECT events FROM kept_audit_entries k WHERE k.seq = ${seq} + ${next} - audit_entries.seq)
             WHERE seq IN (${seq}, ${next})`
          ],
          found: `edited ${Math.min(seq, next)}`
        }
      case "renumber":
        return {
          statements: [`UPDATE audit_entries SET seq = ${gap} OVERRIDING`, ""]
            .slice(1)
            .concat(
              `DELETE FROM audit_entries ${end}`,
              `INSERT INTO audit_entries OVERRIDING SYSTEM VALUE SELECT ${gap}, at, events FROM kept_audit_entries ${end}`
            )
            .filter((text) => text !== ""),
          found: gap < seq ? `inserted ${gap}` : `removed ${seq}`
        }
      case "hash":
        return {
          statements: [`${checkpoint} hash = sha256(hash) WHERE number = ${number}`],
          found: `checkpoint ${firstUnder(number)}`
        }
      case "digest":
        return {
          statements: [
            `${checkpoint} digests = set_byte(digests, ${index + other}, 255 - get_byte(digests, ${index + other})) WHERE number = ${number}`
          ],
          found: `checkpoint ${firstUnder(number)}`
        }
      case "checkpoint":
        return {
          statements: [`DELETE FROM audit_checkpoints WHERE number = ${number}`],
          found: `checkpoint ${firstUnder(number)}`
        }
      case "both":
        return {
          statements: [
            `${entry} events = '[]' ${end}`,
            `${checkpoint} digests = (
               SELECT string_agg(int8send(seq) || sha256(int8send(seq) || timestamptz_send(at) || convert_to(events::text, 'UTF8')), '' ORDER BY seq)
               FROM audit_entries WHERE seq <= 3), hash = sha256(digests) WHERE number = 1`
          ],
          found: seq <= 3 ? "checkpoint 1" : "checkpoint 1"
        }
    }
  }
)

describe("byok audit verify on PostgreSQL", () => {
  it.live("counts what is as it was written, over gaps and checkpoints", () =>
    Effect.gen(function* () {
      const { audit, sql } = yield* tenEntries
      const [newest] = yield* sql<{ hash: string }>`
        SELECT encode(hash, 'hex') AS hash FROM audit_checkpoints ORDER BY number DESC LIMIT 1`
      const { last_at, ...report } = yield* audit.verify()
      assert.deepStrictEqual(report, {
        entries: 10,
        events: 20,
        last_seq: 14,
        unsealed: 0,
        head: newest?.hash ?? "",
        fault: null
      })
      assert.match(last_at ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    })
  )

  it.live("an empty log is intact", () =>
    Effect.gen(function* () {
      const { audit } = yield* open
      assert.deepStrictEqual(yield* audit.verify(), {
        entries: 0,
        events: 0,
        last_seq: null,
        last_at: null,
        unsealed: 0,
        head: null,
        fault: null
      })
    })
  )

  it.live("finds whatever is edited, removed, inserted or swapped, and names it; restored it is intact (control)", () =>
    Effect.gen(function* () {
      const { audit, sql } = yield* tenEntries
      const checked = yield* Arbitrary.checkEffect(
        tampering,
        Effect.fnUntraced(function* ({ found: expected, statements }) {
          for (const statement of statements) yield* sql.unsafe(statement)
          const told = found(yield* audit.verify())
          yield* restore(sql)
          assert.strictEqual(told, expected, statements.join(";\n"))
          assert.strictEqual(found(yield* audit.verify()), "intact")
          return true
        }),
        { runs: 120 }
      )
      assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
    })
  )
})
