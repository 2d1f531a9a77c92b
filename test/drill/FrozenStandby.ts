import { Effect, Exit, Fiber } from "effect"
import { newBed } from "./Bed.ts"
import { pause } from "./deadline.ts"
import { newPair } from "./Pair.ts"
import type { Findings, Row } from "./Row.ts"
import { judge, underLoad } from "./underLoad.ts"
import { answersMeanwhile } from "./watch.ts"

const clients = 8

const frozen = (seconds: number) =>
  Effect.fnUntraced(function* (findings: Findings) {
    const { freeze, primary, thaw } = yield* newPair(true)
    const bed = yield* newBed(primary)
    const during = Effect.gen(function* () {
      const before = findings.ledger.acked.length
      yield* pause(seconds * 1_000)
      findings.expect(findings.ledger.acked.length <= before + clients, "creates went on: the standby is not frozen")
      const [row] = yield* primary.query("SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
      findings.show(`${String(row?.["n"])} commits wait for the standby in the end`)
    })
    yield* underLoad({ findings, bed, clients }, function* ({ acked, service: { url } }) {
      yield* freeze
      yield* answersMeanwhile(findings, url, bed.key, during)
      yield* thaw
      yield* acked
    })
    yield* judge(findings, bed, { fails: true })
  })

const ended = (how: "pg_cancel_backend" | "pg_terminate_backend") =>
  Effect.fnUntraced(function* (findings: Findings) {
    const { follow, freeze, primary, promote, standby } = yield* newPair(true)
    const bed = yield* newBed(primary)
    yield* primary.query("CREATE TABLE control (id int)")
    const end = primary.query(`SELECT ${how}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
    yield* underLoad({ findings, bed, clients }, function* () {
      yield* freeze
      yield* pause(500)
      const before = findings.ledger.acked.length
      const control = yield* Effect.forkChild(primary.query("INSERT INTO control VALUES (1)"))
      let ends = 0
      for (let n = 0; n < 40; n += 1) {
        ends += (yield* end).length
        yield* pause(50)
      }
      const outcome = yield* Fiber.await(control)
      findings.expect(Exit.isSuccess(outcome) === (how === "pg_cancel_backend"), "the control got another outcome")
      findings.show(`${ends} times a waiting commit was ended`)
      findings.expect(ends > 0, "no commit has waited")
      findings.expect(
        findings.ledger.acked.length === before,
        "a commit was acknowledged that the standby has not seen"
      )
      yield* primary.kill
    })
    // Data that reached the standby's memory but not its disk must be lost as well.
    yield* standby.kill
    yield* follow
    yield* promote
    const [row] = yield* standby.query("SELECT count(*)::int AS n FROM control")
    findings.expect(row?.["n"] === 0, "the control has lost nothing")
    if (how === "pg_cancel_backend") findings.show("control: a client that ignores notices was told of success")
    yield* judge(findings, bed, { DATABASE_URL: standby.url })
  })

const thenLost = "then the primary killed and the standby promoted"

export const rows: ReadonlyArray<Row> = [
  { id: "R6", fault: "synchronous standby frozen for 10 s", run: frozen(10) },
  { id: "R6", fault: `commits that wait for it cancelled, ${thenLost}`, run: ended("pg_cancel_backend") },
  {
    id: "R6",
    fault: `connections whose commits wait for it terminated, ${thenLost}`,
    run: ended("pg_terminate_backend")
  }
]
