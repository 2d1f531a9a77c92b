import { Effect } from "effect"
import { statusOf } from "../bench/statusOf.ts"
import { eventually } from "../support/process/eventually.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { type Bed, checked, embeddedBed } from "./Bed.ts"
import type { Findings, Row } from "./Row.ts"
import { newClusterBed, underLoad } from "./underLoad.ts"

const kills = 20

/** Milliseconds from the start of the process until it is ready; on a busy machine three times what an orderly start takes. */
const limit = 2_000

const ready = (url: string) =>
  eventually(
    "it is ready",
    Effect.promise(() => statusOf(`${url}/health/ready`)),
    (status) => status === 200
  )

const killAndStart = Effect.fnUntraced(function* (bed: Bed, findings: Findings) {
  const times: Array<number> = []
  const beforehand = performance.now()
  const orderly = yield* Effect.scoped(
    Effect.gen(function* () {
      const { url } = yield* startService(bed.settings)
      yield* ready(url)
      return performance.now() - beforehand
    })
  )
  yield* underLoad({ findings, bed }, function* ({ acked, again, service }) {
    for (let running = service; times.length < kills; yield* acked) {
      yield* running.signal("SIGKILL")
      yield* running.ended
      const began = performance.now()
      running = yield* again
      yield* ready(running.url)
      times.push(performance.now() - began)
    }
  })
  const slowest = Math.max(...times)
  const allowed = Math.max(limit, 3 * orderly)
  const median = times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0
  findings.show(`ready again after ${median.toFixed(0)} ms in the middle, ${slowest.toFixed(0)} ms at most`)
  findings.expect(median < allowed, `not ready again within ${allowed.toFixed(0)} ms in the middle`)
  findings.judge(yield* checked(bed, findings.ledger))
})

const onItsOwn = Effect.fnUntraced(function* (findings: Findings) {
  const { bed } = yield* newClusterBed()
  yield* killAndStart(bed, findings)
})

export const rows: ReadonlyArray<Row> = [
  { id: "R1", fault: `service killed (SIGKILL) ${kills} times`, run: onItsOwn },
  {
    id: "R1",
    fault: `service killed (SIGKILL) ${kills} times with the embedded database, which ends with it`,
    run: (findings) => Effect.flatMap(embeddedBed, (bed) => killAndStart(bed, findings))
  }
]
