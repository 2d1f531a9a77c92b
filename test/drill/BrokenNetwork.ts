import { Effect } from "effect"
import { applicationName } from "../../src/sql/connection/Database.ts"
import { untilAcked } from "../support/database/AckChecker.ts"
import { type FaultyProxy, faultyProxy } from "../faults/FaultyProxy.ts"
import { eventually } from "../support/process/eventually.ts"
import { newBed } from "./Bed.ts"
import { newCluster } from "./Cluster.ts"
import { pause } from "./deadline.ts"
import type { Findings, Row } from "./Row.ts"
import { judge, underLoad } from "./underLoad.ts"

/** Connections for reads, as many for writes, and one for background work. */
const most = 2 * 10 + 1

const broken = (fault: (proxy: FaultyProxy) => Effect.Effect<unknown>) => (findings: Findings) =>
  Effect.gen(function* () {
    const cluster = yield* newCluster()
    yield* cluster.start()
    const proxy = yield* faultyProxy(cluster.url)
    const bed = yield* newBed({ url: proxy.url })
    const connections = Effect.map(
      cluster.query(`SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = '${applicationName}'`),
      ([row]) => Number(row?.["n"])
    )
    yield* underLoad({ findings, bed, clients: 32 }, function* ({ acked }) {
      yield* fault(proxy)
      proxy.forward()
      const healing = performance.now()
      yield* untilAcked(findings.ledger, 1)
      findings.show(`healed after ${(performance.now() - healing).toFixed(0)} ms`)
      yield* acked
      yield* eventually(`at most ${most} connections are left: more have leaked`, connections, (n) => n <= most)
    })
    yield* eventually("the stopped service has no connection left", connections, (n) => n === 0)
    yield* judge(findings, bed)
  })

const lasting = (milliseconds: number, begin: (proxy: FaultyProxy) => void) => (proxy: FaultyProxy) =>
  Effect.andThen(
    Effect.sync(() => begin(proxy)),
    pause(milliseconds)
  )

const tenTimes = ({ reset }: FaultyProxy) =>
  Effect.forEach(Array.from({ length: 10 }), () => Effect.andThen(Effect.sync(reset), pause(200)), { discard: true })

const faults: ReadonlyArray<readonly [name: string, fault: (proxy: FaultyProxy) => Effect.Effect<unknown>]> = [
  ["every connection to the database reset, 10 times in 2 s", tenTimes],
  ["nothing passes to the database for 8 s, and nobody is told", lasting(8_000, ({ swallow }) => swallow())],
  ["the database's answers come 200 ms later, for 4 s", lasting(4_000, ({ delay }) => delay(200))],
  ["1 byte a second passes, for 12 s", lasting(12_000, ({ trickle }) => trickle())]
]

export const rows: ReadonlyArray<Row> = faults.map(([name, fault]) => ({ id: "R4", fault: name, run: broken(fault) }))
