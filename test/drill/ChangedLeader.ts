import { Effect } from "effect"
import { type FaultyProxy, faultyProxy } from "../faults/FaultyProxy.ts"
import { newBed } from "./Bed.ts"
import { pause } from "./deadline.ts"
import { newPair, type Pair } from "./Pair.ts"
import { newPatroni, type Patroni } from "./Patroni.ts"
import type { Findings, Row } from "./Row.ts"
import { throughChange } from "./throughChange.ts"

/** How long a balancer takes to notice, in milliseconds. */
const notice = 500

interface Balanced extends Pair {
  /** In the place of a balancer, which leads to the primary at first. */
  readonly proxy: FaultyProxy
}

const byProxy = (change: (balanced: Balanced) => Effect.Effect<void>) => (findings: Findings) =>
  Effect.gen(function* () {
    const pair = yield* newPair(true)
    const proxy = yield* faultyProxy(pair.primary.url)
    yield* throughChange(findings, yield* newBed(proxy), change({ ...pair, proxy }))
  })

const switched = byProxy(({ primary, promote, proxy, rejoin, standby }) =>
  Effect.gen(function* () {
    yield* primary.stop("SIGINT")
    yield* promote
    yield* rejoin
    yield* pause(notice)
    proxy.leadTo(standby.url)
  })
)

const killed = byProxy(({ primary, promote, proxy, standby }) =>
  Effect.gen(function* () {
    yield* primary.kill
    yield* pause(notice)
    yield* promote
    yield* pause(notice)
    proxy.leadTo(standby.url)
  })
)

const misled = byProxy(({ primary, proxy, standby }) =>
  Effect.gen(function* () {
    proxy.leadTo(standby.url)
    proxy.reset()
    yield* pause(3 * notice)
    proxy.leadTo(primary.url)
  })
)

/** Through HAProxy and PgBouncer, with the leader changed by Patroni. */
const byPatroni = (change: (patroni: Patroni) => Effect.Effect<void>) => (findings: Findings) =>
  Effect.gen(function* () {
    const patroni = yield* newPatroni
    const bed = yield* newBed(patroni, { DATABASE_POOLER: "true" })
    yield* throughChange(findings, bed, change(patroni))
  })

export const rows: ReadonlyArray<Row> = [
  { id: "R16", fault: "primary and synchronous standby change places, the balancer notices late", run: switched },
  { id: "R16", fault: "primary killed, synchronous standby promoted, the balancer notices late", run: killed },
  { id: "R16", fault: "every connection led to the read-only standby for 1.5 s", run: misled },
  { id: "R16", fault: "Patroni, HAProxy and PgBouncer: switchover", run: byPatroni(({ switchover }) => switchover) },
  {
    id: "R16",
    fault: "Patroni, HAProxy and PgBouncer: the leader's postmaster killed",
    run: byPatroni(({ killPostmaster }) => killPostmaster)
  }
]
