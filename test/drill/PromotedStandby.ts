import { Effect } from "effect"
import { faultyProxy } from "../faults/FaultyProxy.ts"
import { checked, newBed } from "./Bed.ts"
import { newPair } from "./Pair.ts"
import type { Findings, Row } from "./Row.ts"
import { judge, underLoad } from "./underLoad.ts"

const promoted = Effect.fnUntraced(function* (findings: Findings) {
  const { primary, promote, standby } = yield* newPair(true)
  const proxy = yield* faultyProxy(primary.url)
  const bed = yield* newBed({ url: proxy.url })
  yield* underLoad({ findings, bed }, function* ({ acked }) {
    yield* primary.kill
    yield* promote
    proxy.leadTo(standby.url)
    yield* acked
  })
  yield* judge(findings, bed)
})

const control = Effect.fnUntraced(function* (findings: Findings) {
  const { follow, freeze, primary, promote, standby } = yield* newPair(false)
  const bed = yield* newBed(primary)
  yield* underLoad({ findings, bed }, function* ({ acked }) {
    yield* freeze
    yield* acked
    yield* primary.kill
  })
  // Data that reached the standby's memory but not its disk must be lost as well.
  yield* standby.kill
  yield* follow
  yield* promote
  findings.judgeControl(yield* checked(bed, findings.ledger, { DATABASE_URL: standby.url }))
})

export const rows: ReadonlyArray<Row> = [
  { id: "R7", fault: "primary killed, synchronous standby promoted, service led there", run: promoted },
  { id: "control", fault: "primary killed, frozen asynchronous standby promoted: must lose", run: control }
]
