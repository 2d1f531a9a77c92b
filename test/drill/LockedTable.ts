import { Effect } from "effect"
import { untilAcked } from "../support/database/AckChecker.ts"
import { pause } from "./deadline.ts"
import { lock } from "./lock.ts"
import type { Findings, Row } from "./Row.ts"
import { enough, judge, type Loaded, newClusterBed, underLoad } from "./underLoad.ts"
import { answersMeanwhile } from "./watch.ts"

const clients = 32

/** Blocks inserts, not reads. */
const againstInserts = "LOCK TABLE credentials IN SHARE ROW EXCLUSIVE MODE"

const run = (other: Record<string, string>) => (findings: Findings) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const { bed, cluster } = yield* newClusterBed()
    const during = Effect.gen(function* () {
      yield* lock(cluster.socket, againstInserts)
      const before = ledger.acked.length
      yield* pause(8_000)
      findings.expect(ledger.acked.length <= before + clients, "creates went on: the lock does not hold")
    })
    const fault = ({ service: { url } }: Loaded) =>
      Effect.andThen(answersMeanwhile(findings, url, bed.key, Effect.scoped(during)), untilAcked(ledger, enough))
    yield* underLoad(bed, ledger, fault, { clients, other })
    yield* judge(findings, bed, { fails: true })
  })

export const rows: ReadonlyArray<Row> = [
  { id: "R5", fault: "inserts locked out for 8 s", run: run({}) },
  {
    id: "R5",
    fault: "inserts locked out for 8 s, without batching: every connection for writes waits",
    run: run({ DATABASE_BATCHING: "false" })
  }
]
