import { Effect } from "effect"
import { untilAcked } from "../support/database/AckChecker.ts"
import { checked } from "./Bed.ts"
import type { Findings, Row } from "./Row.ts"
import { enough, newClusterBed, underLoad } from "./underLoad.ts"

const stops = 5

const run = (findings: Findings) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const { bed } = yield* newClusterBed()
    const codes: Array<number | string> = []
    yield* underLoad(bed, ledger, ({ again, service }) =>
      Effect.gen(function* () {
        for (let running = service; codes.length < stops; yield* untilAcked(ledger, enough)) {
          yield* running.signal("SIGTERM")
          codes.push(yield* running.ended)
          running = yield* again
        }
      })
    )
    findings.show(`exit codes ${Array.from(new Set(codes)).join(", ")}`)
    findings.expect(
      codes.every((code) => code === 0),
      "an exit code is not 0"
    )
    findings.expect(ledger.unknown.length === 0, "a request that was sent was not answered")
    findings.judge(yield* checked(bed, ledger))
  })

export const rows: ReadonlyArray<Row> = [{ id: "R2", fault: `service stopped (SIGTERM) ${stops} times`, run }]
