import { randomUUID } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import { Arbitrary, Clock, Effect, Exit, Fiber, Layer, Scope } from "effect"
import type { SqlClient } from "effect/sql"
import { AccountId } from "../../../src/domain/Identifiers.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { AuditLog } from "../../../src/port/AuditLog.ts"
import { type EventPage, Events } from "../../../src/port/Events.ts"
import * as EventsLive from "../../../src/service/audit/Events.ts"
import { openStore, storesOn } from "../../support/database/stores.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const open = Effect.gen(function* () {
  const { ports, sql, url } = yield* openStore
  const instances = [ports, yield* storesOn(url)]
  const logs = yield* Effect.forEach(instances, (ports) => Effect.provide(AuditLog, ports))
  const events = yield* Effect.forEach(logs, (log) =>
    Effect.provide(Events, Layer.provide(EventsLive.layer, defaultSettings)).pipe(Effect.provideService(AuditLog, log))
  )
  return { sql, logs, events }
})

const often = ["begin", "begin", "commit", "poll", "poll", "seal", "seal"] as const
const kinds = [...often, "rollback", "terminate"] as const
const step = Arbitrary.all({ kind: elementOf(kinds), writer: integer(0, 2), instance: integer(0, 1) })
const steps = Arbitrary.array(step, { minLength: 15, maxLength: 40 })
type Steps = typeof steps extends Arbitrary.Arbitrary<infer A> ? A : never

/** A transaction that has written an entry and goes on, in a session of its own. */
const begin = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const connection = yield* Scope.provide(sql.reserve, scope)
    const execute = (text: string) => Effect.exit(connection.executeUnprepared(text, [], undefined))
    yield* execute("BEGIN")
    const [row] = (yield* connection.executeUnprepared(
      `INSERT INTO audit_entries (events) VALUES ('[{"action":"keyring.register"},{"action":"keyring.promote"}]'::json)
      RETURNING seq::int AS seq, pg_backend_pid() AS pid`,
      [],
      undefined
    )) as ReadonlyArray<{ readonly seq: number; readonly pid: number }>
    assert(row !== undefined)
    const end = (text: string) => Effect.andThen(execute(text), Scope.close(scope, Exit.void))
    return { ...row, end }
  })

type Reader = (after: number) => Effect.Effect<ReadonlyArray<number>, unknown>

/** Runs the steps and returns what was committed, in order, and what a reader that follows has seen. */
const run = Effect.fnUntraced(function* (
  { logs, sql }: Effect.Success<typeof open>,
  given: Steps,
  readers: ReadonlyArray<Reader>
) {
  yield* sql`TRUNCATE audit_entries, audit_checkpoints`
  const [before] = yield* sql<{
    last: number
  }>`SELECT nextval(pg_get_serial_sequence('audit_entries', 'seq'))::int AS last`
  const writers = new Map<number, Effect.Success<ReturnType<typeof begin>>>()
  const committed: Array<number> = []
  const seen: Array<number> = []
  const seal = (instance: number) => Effect.flatMap(Effect.fromNullishOr(logs[instance]), ({ seal }) => seal(0))
  const poll = (instance: number) =>
    Effect.gen(function* () {
      const reader = yield* Effect.fromNullishOr(readers[instance % readers.length])
      seen.push(...(yield* reader(seen.at(-1) ?? before?.last ?? 0)))
    })
  const commit = (writer: number) =>
    Effect.gen(function* () {
      const open = writers.get(writer)
      if (open === undefined) return
      writers.delete(writer)
      yield* open.end("COMMIT")
      committed.push(open.seq)
    })
  for (const { instance, kind, writer } of given) {
    const open = writers.get(writer)
    switch (kind) {
      case "begin":
        if (open === undefined) writers.set(writer, yield* begin(sql))
        break
      case "commit":
        yield* commit(writer)
        break
      case "rollback":
      case "terminate":
        if (open === undefined) break
        writers.delete(writer)
        if (kind === "terminate") yield* sql`SELECT pg_terminate_backend(${open.pid}::int, 1000)`
        yield* open.end("ROLLBACK")
        break
      case "seal":
        yield* seal(instance)
        break
      case "poll":
        yield* poll(instance)
    }
  }
  for (const writer of Array.from(writers.keys())) yield* commit(writer)
  yield* seal(1)
  for (let last = -1; last !== seen.length;) {
    last = seen.length
    yield* poll(0)
  }
  return { committed: committed.toSorted((one, other) => one - other), seen }
})

/** Entries with the number of their events, by three accounts. */
const log = Arbitrary.array(Arbitrary.all({ account: integer(0, 2), events: integer(1, 3) }), {
  minLength: 1,
  maxLength: 12
})

describe("an account that reads its events", () => {
  it.live("gets the rest of the list from any event on, and nothing that tells what others did", function* () {
    const { events, logs, sql } = yield* open
    const { list } = yield* Effect.fromNullishOr(events[0])
    const { seal } = yield* Effect.fromNullishOr(logs[0])
    type Shown = Effect.Success<ReturnType<typeof list>>
    const follows = (skipsEntry: boolean) =>
      Effect.fnUntraced(function* (given: typeof log extends Arbitrary.Arbitrary<infer A> ? A : never) {
        const accounts = [0, 1, 2].map(() => AccountId.make(randomUUID()))
        for (const entry of given) {
          const acts = Array.from({ length: entry.events }, () => ({ action: "workspace.create" }))
          yield* sql`INSERT INTO audit_entries (account_id, events)
            VALUES (${accounts[entry.account] ?? ""}, ${JSON.stringify(acts)}::json)`
        }
        yield* seal(1000)
        const asAccount = Effect.provideService(CurrentPrincipal, {
          kind: "in_process",
          account_id: accounts[0] ?? assert.fail("no account")
        })
        const read = (page: EventPage) => asAccount(list(page))
        const own = given.filter(({ account }) => account === 0)
        for (const [name, whole] of [
          ["before", yield* read({ limit: 100 })],
          ["after", yield* read({ limit: 100, after: "0" })]
        ] as const) {
          if (whole.length !== own.reduce((sum, entry) => sum + entry.events, 0)) return false
          if (JSON.stringify(whole).includes("seq")) return false
          for (const [index, event] of whole.entries()) {
            const rest: Array<Shown[number]> = []
            const last = whole.findLast(({ id }) => id.slice(0, -2) === event.id.slice(0, -2))
            for (let cursor = skipsEntry ? last?.id : event.id; cursor !== undefined;) {
              const page: Shown = yield* read({ limit: 1, [name]: cursor })
              rest.push(...page)
              cursor = page.at(-1)?.id
            }
            if (!isDeepStrictEqual(rest, whole.slice(index + 1))) return false
          }
        }
        return true
      })
    const checked = yield* Arbitrary.checkEffect(log, follows(false), { runs: 15, maxShrinks: 10 })
    assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
    const twoOfOne = [{ account: 0, events: 2 }]
    assert.isTrue(yield* follows(false)(twoOfOne))
    assert.isFalse(yield* follows(true)(twoOfOne), "control: a reader that goes on after the entry")
  })
})

describe("a subscriber to events", () => {
  it.live(
    "gets each event once, in order, however late it is committed; reading by entry number would miss one (control)",
    function* () {
      const opened = yield* open
      const readers = opened.events.map(
        ({ next }): Reader =>
          (after) =>
            Effect.map(next(after, 2), ({ events, last_seq }) => {
              const seqs = events.filter(({ id }) => id.endsWith(".0")).map(({ seq }) => seq)
              assert.lengthOf(events, 2 * seqs.length, "two of each entry")
              assert.strictEqual(last_seq, seqs.at(-1) ?? after)
              return seqs
            })
      )
      const byNumber: Reader = (after) =>
        Effect.map(
          opened.sql<{ seq: number }>`SELECT seq::int AS seq FROM audit_entries WHERE seq > ${after} ORDER BY seq`,
          (rows) => rows.map(({ seq }) => seq)
        )
      const isComplete = (readers: ReadonlyArray<Reader>) => (given: Steps) =>
        Effect.map(run(opened, given, readers), ({ committed, seen }) => isDeepStrictEqual(committed, seen))
      const checked = yield* Arbitrary.checkEffect(steps, isComplete(readers), { runs: 60, maxShrinks: 20 })
      assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
      const late = (
        [
          ["begin", 0],
          ["begin", 1],
          ["commit", 1],
          ["poll", 0],
          ["commit", 0]
        ] as const
      ).map(([kind, writer]) => ({ kind, writer, instance: 0 }))
      assert.isTrue(yield* isComplete(readers)(late))
      assert.isFalse(yield* isComplete([byNumber])(late), "control")
    },
    60_000
  )

  it.live("waits for the next event until a timeout", function* () {
    const { events, logs, sql } = yield* open
    const [next, [log]] = [events[0]?.next, logs]
    assert(next !== undefined && log !== undefined)
    const last = (yield* next(0, 100)).last_seq
    assert.deepStrictEqual(yield* next(last, 10, "100 millis"), { events: [], last_seq: last })
    const waiting = yield* Effect.forkChild(next(last, 10, "10 seconds"))
    yield* Effect.sleep("50 millis")
    yield* sql`INSERT INTO audit_entries (events) VALUES ('[{"action":"keyring.register","kek_id":"late"}]'::json)`
    yield* log.seal(1000)
    const { events: found } = yield* Fiber.join(waiting)
    assert.deepInclude<object | undefined>(found[0], { action: "keyring.register", kek_id: "late" })
  })

  it.live("waits as long as it asked for, though the machine's clock is put back meanwhile", function* () {
    const { events } = yield* open
    const { next } = yield* Effect.fromNullishOr(events[0])
    const clock = yield* Clock.Clock
    let offset = 0
    const now = () => clock.currentTimeMillisUnsafe() + offset
    const changed = Object.create(clock, {
      currentTimeMillisUnsafe: { value: now },
      currentTimeMillis: { value: Effect.sync(now) }
    }) as Clock.Clock
    const waiting = yield* Effect.forkChild(Effect.provideService(next(0, 1, "1 second"), Clock.Clock, changed))
    yield* Effect.sleep(200)
    offset = -31_536_000_000
    const answer = yield* Effect.timeout(Fiber.join(waiting), "10 seconds")
    assert.deepStrictEqual(answer.events, [])
  })
})
