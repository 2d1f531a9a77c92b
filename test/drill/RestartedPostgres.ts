import { Effect } from "effect"
import { checked } from "./Bed.ts"
import type { Findings, Row } from "./Row.ts"
import { judge, newClusterBed, underLoad } from "./underLoad.ts"

const restarts = 3

const restarted = (signal: "SIGINT" | "SIGQUIT") => (findings: Findings) =>
  Effect.gen(function* () {
    const { bed, cluster } = yield* newClusterBed()
    yield* underLoad({ findings, bed }, function* ({ acked }) {
      for (let n = 0; n < restarts; n += 1) {
        yield* cluster.stop(signal)
        yield* cluster.start()
        yield* acked
      }
    })
    yield* judge(findings, bed)
  })

/** The write-ahead log is then written when it must be, and otherwise every ten seconds. */
const lazyLog = { wal_writer_delay: "10s", wal_writer_flush_after: "1GB" }

/** A power failure right after acknowledgements, where an operator has turned `synchronous_commit` off. */
const relaxed =
  (other: Record<string, string>, judge: (findings: Findings, faults: ReadonlyArray<string>) => void) =>
  (findings: Findings) =>
    Effect.gen(function* () {
      const { bed, cluster } = yield* newClusterBed({}, lazyLog)
      yield* cluster.query("ALTER DATABASE postgres SET synchronous_commit = off")
      yield* underLoad({ findings, bed, other }, function* ({ acked, service }) {
        const { status } = yield* Effect.promise(() => fetch(`${service.url}/health/ready`))
        findings.show(`readiness ${status}`)
        yield* acked
        yield* cluster.kill
      })
      yield* cluster.start(lazyLog)
      judge(findings, yield* checked(bed, findings.ledger, other))
    })

export const rows: ReadonlyArray<Row> = [
  { id: "R3", fault: `PostgreSQL restarted ${restarts} times, fast`, run: restarted("SIGINT") },
  { id: "R3", fault: `PostgreSQL restarted ${restarts} times, immediately`, run: restarted("SIGQUIT") },
  {
    id: "R3",
    fault: "all of PostgreSQL killed, synchronous_commit off for the database",
    run: relaxed({}, (findings, faults) => findings.judge(faults))
  },
  {
    id: "control",
    fault:
      "all of PostgreSQL killed, synchronous_commit off and out of the service's reach (DATABASE_POOLER): must lose",
    run: relaxed({ DATABASE_POOLER: "true" }, (findings, faults) => findings.judgeControl(faults))
  }
]
