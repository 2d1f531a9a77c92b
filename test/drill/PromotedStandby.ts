import { Effect } from "effect"
import { untilAcked } from "../support/database/AckChecker.ts"
import { faultyProxy } from "../faults/FaultyProxy.ts"
import { checked, newBed } from "./Bed.ts"
import { newPair } from "./Pair.ts"
import type { Findings, Row } from "./Row.ts"
import { enough, judge, underLoad } from "./underLoad.ts"

const promoted = (findings: Findings) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const { primary, promote, standby } = yield* newPair(true)
    const proxy = yield* faultyProxy(primary.url)
    const bed = yield* newBed({ url: proxy.url })
    yield* underLoad(bed, ledger, () =>
      Effect.gen(function* () {
        yield* primary.kill
        yield* promote
        proxy.leadTo(standby.url)
        yield* untilAcked(ledger, enough)
      })
    )
    yield* judge(findings, bed)
  })

const control = (findings: Findings) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const { follow, freeze, primary, promote, standby } = yield* newPair(false)
    const bed = yield* newBed(primary)
    yield* underLoad(bed, ledger, () =>
      Effect.gen(function* () {
        yield* freeze
        yield* untilAcked(ledger, enough)
        yield* primary.kill
      })
    )
    // What reached the standby's machine but not its disk must be lost as well.
    yield* standby.kill
    yield* follow
    yield* promote
    findings.judgeControl(yield* checked(bed, ledger, { DATABASE_URL: standby.url }))
  })

export const rows: ReadonlyArray<Row> = [
  { id: "R7", fault: "primary killed, synchronous standby promoted, service led there", run: promoted },
  { id: "control", fault: "primary killed, frozen asynchronous standby promoted: must lose", run: control }
]
