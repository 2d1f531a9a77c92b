import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { untilAcked } from "../support/database/AckChecker.ts"
import { checked, newBed } from "./Bed.ts"
import { newCluster } from "./Cluster.ts"
import { showAnswers } from "./deadline.ts"
import { lock } from "./lock.ts"
import type { Findings, Row } from "./Row.ts"
import { enough, underLoad } from "./underLoad.ts"
import { expectWell, watchGet, watchLiveness } from "./watch.ts"

/** Blocks inserts, not reads. */
const againstInserts = "LOCK TABLE credentials IN SHARE ROW EXCLUSIVE MODE"

const run = (other: Record<string, string>) => (findings: Findings) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const cluster = yield* newCluster()
    yield* cluster.start()
    const bed = yield* newBed(cluster)
    yield* underLoad(
      bed,
      ledger,
      ({ service: { url } }) =>
        Effect.gen(function* () {
          const during = Effect.gen(function* () {
            yield* lock(cluster.socket, againstInserts)
            const live = yield* watchLiveness(url)
            const gets = yield* watchGet(url, bed.key, ledger.acked[0]?.id)
            const before = ledger.acked.length
            yield* Effect.promise(() => setTimeout(8_000))
            findings.expect(ledger.acked.length <= before + 32, "creates went on: the lock does not hold")
            return { live, gets }
          })
          const { gets, live } = yield* Effect.scoped(during)
          expectWell(findings, "get", gets)
          expectWell(findings, "/health/live", live)
          yield* untilAcked(ledger, enough)
        }),
      { clients: 32, other }
    )
    showAnswers(findings)
    findings.expect(ledger.unknown.length > 0, "no create has failed")
    findings.judge(yield* checked(bed, ledger))
  })

export const rows: ReadonlyArray<Row> = [
  { id: "R5", fault: "inserts locked out for 8 s", run: run({}) },
  {
    id: "R5",
    fault: "inserts locked out for 8 s, without batching: every connection for writes waits",
    run: run({ DATABASE_BATCHING: "false" })
  }
]
