import { Effect } from "effect"
import { adminClient } from "../support/database/freshDatabase.ts"
import { holdOpen } from "../support/database/transactions.ts"
import { pause } from "./deadline.ts"
import type { Findings, Row } from "./Row.ts"
import { judge, newClusterBed, underLoad } from "./underLoad.ts"
import { answersMeanwhile } from "./watch.ts"

const clients = 32

/** Blocks inserts, not reads. */
const againstInserts = "LOCK TABLE credentials IN SHARE ROW EXCLUSIVE MODE"

const run = (findings: Findings) =>
  Effect.gen(function* () {
    const { bed, cluster } = yield* newClusterBed()
    const during = Effect.gen(function* () {
      yield* Effect.asVoid(holdOpen(yield* adminClient(cluster.url), againstInserts))
      const before = findings.ledger.acked.length
      yield* pause(8_000)
      findings.expect(findings.ledger.acked.length <= before + clients, "creates went on: the lock does not hold")
    })
    yield* underLoad({ findings, bed, clients }, function* ({ acked, service: { url } }) {
      yield* answersMeanwhile(findings, url, bed.key, Effect.scoped(during))
      yield* acked
    })
    yield* judge(findings, bed, { fails: true })
  })

export const rows: ReadonlyArray<Row> = [
  { id: "R5", fault: "inserts locked out for 8 s: every connection for writes waits", run }
]
