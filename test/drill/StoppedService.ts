import { Effect } from "effect"
import { checked } from "./Bed.ts"
import type { Findings, Row } from "./Row.ts"
import { newClusterBed, underLoad } from "./underLoad.ts"

const stops = 5

const run = Effect.fnUntraced(function* (findings: Findings) {
  const { bed } = yield* newClusterBed()
  const codes: Array<number | string> = []
  yield* underLoad({ findings, bed }, function* ({ acked, again, service }) {
    for (let running = service; codes.length < stops; yield* acked) {
      yield* running.signal("SIGTERM")
      codes.push(yield* running.ended)
      running = yield* again
    }
  })
  findings.show(`exit codes ${Array.from(new Set(codes)).join(", ")}`)
  findings.expect(
    codes.every((code) => code === 0),
    "an exit code is not 0"
  )
  findings.expect(findings.ledger.unknown.length === 0, "a request that was sent was not answered")
  findings.judge(yield* checked(bed, findings.ledger))
})

export const rows: ReadonlyArray<Row> = [{ id: "R2", fault: `service stopped (SIGTERM) ${stops} times`, run }]
