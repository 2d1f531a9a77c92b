import { Effect } from "effect"
import { type Ledger, newLedger, untilAcked } from "../support/database/AckChecker.ts"
import { runByok } from "../support/process/runByok.ts"
import { runProgram } from "../support/process/runNode.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { checked, newBed } from "./Bed.ts"
import { distribute, newCitusCluster } from "./CitusCluster.ts"
import type { Cluster } from "./Cluster.ts"
import { pause, showAnswers } from "./deadline.ts"
import type { Findings, Row } from "./Row.ts"
import { type Sent, steadyLoad } from "./steadyLoad.ts"
import { enough } from "./underLoad.ts"

/** How long the worker is away, in milliseconds. */
const away = 10_000

interface Account {
  readonly account_id: string
  readonly management_key: string
}

/** Two accounts whose rows are on different workers. */
const newBedOfTwo = Effect.gen(function* () {
  const cluster = yield* newCitusCluster({
    "citus.recover_2pc_interval": "5s",
    "citus.node_connection_timeout": "1s"
  })
  yield* distribute(cluster)
  const { settings } = yield* newBed(cluster.coordinator)
  const make = Effect.gen(function* () {
    const { stdout } = yield* runByok(["account", "create", "--name", "drill", "--json"], settings)
    const account = JSON.parse(stdout) as Account
    return { account, worker: yield* cluster.workerOf(account.account_id) }
  })
  const hit = yield* make
  let spared = yield* make
  while (spared.worker === hit.worker) spared = yield* make
  return { cluster, settings, hit, spared }
})

/** Puts a load on both accounts, and kills the worker of one of them meanwhile; `restore` is done before it starts again. */
const underBoth = Effect.fnUntraced(function* (
  findings: Findings,
  restore: (worker: Cluster) => Effect.Effect<unknown>,
  prepare: (worker: Cluster, restart: (node: Cluster) => Effect.Effect<void>) => Effect.Effect<unknown>
) {
  const { ledger } = findings
  const others = newLedger()
  const { cluster, hit, settings, spared } = yield* newBedOfTwo
  yield* prepare(hit.worker, cluster.restart)
  const during = Effect.gen(function* () {
    const { url } = yield* startService(settings)
    const own = yield* steadyLoad(url, hit.account.management_key, ledger)
    const theirs = yield* steadyLoad(url, spared.account.management_key, others)
    const both = Effect.all([untilAcked(ledger, enough), untilAcked(others, enough)], { concurrency: 2 })
    yield* both
    yield* hit.worker.kill
    const from = performance.now()
    yield* pause(away)
    const to = performance.now()
    yield* restore(hit.worker)
    yield* cluster.restart(hit.worker)
    yield* both
    return { own, theirs, from, to }
  })
  const { from, own, theirs, to } = yield* Effect.scoped(during)
  yield* cluster.recover
  const failedOf = (all: ReadonlyArray<Sent>) => all.filter(({ succeeded }) => !succeeded).length
  const meanwhile = own.filter(({ began, ended }) => began > from && ended < to)
  findings.show(`its account: ${failedOf(meanwhile)} of ${meanwhile.length} requests failed while it was away`)
  findings.show(`another worker's account: ${failedOf(theirs)} of ${theirs.length} failed`)
  findings.expect(failedOf(theirs) === 0, "requests of another worker's account failed")
  findings.expect(meanwhile.length > 0 && failedOf(meanwhile) === meanwhile.length, "the worker was not away")
  /** What the other account stored is nothing that nobody sent. */
  const beside = ({ acked, unknown }: Ledger) => [...unknown, ...acked.map(({ key }) => ({ key, status: 201 }))]
  return {
    judged: Effect.suspend(() =>
      checked(
        { settings, key: hit.account.management_key },
        { ...ledger, unknown: [...ledger.unknown, ...beside(others)] }
      )
    )
  }
})

const killed = Effect.fnUntraced(function* (findings: Findings) {
  const nothing = () => Effect.void
  const { judged } = yield* underBoth(findings, nothing, nothing)
  showAnswers(findings)
  findings.judge(yield* judged)
})

/** Restores the worker from a copy of its files that is older than the acknowledged changes. */
const control = Effect.fnUntraced(function* (findings: Findings) {
  const copyOf = ({ data }: Cluster) => `${data}.before`
  const { judged } = yield* underBoth(
    findings,
    (worker) => Effect.andThen(runProgram("rm", ["-rf", worker.data]), runProgram("mv", [copyOf(worker), worker.data])),
    (worker, restart) =>
      Effect.andThen(
        Effect.andThen(worker.stop(), runProgram("cp", ["-pR", worker.data, copyOf(worker)])),
        restart(worker)
      )
  )
  findings.judgeControl(yield* judged)
})

export const rows: ReadonlyArray<Row> = [
  { id: "R17", fault: `Citus: a worker of two killed for ${away / 1000} s`, run: killed },
  { id: "control", fault: "Citus: a worker killed and restored alone from an older copy: must lose", run: control }
]
