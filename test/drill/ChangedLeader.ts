import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { faultyProxy } from "../faults/FaultyProxy.ts"
import { newBed } from "./Bed.ts"
import { newPair } from "./Pair.ts"
import { newPatroni, type Patroni } from "./Patroni.ts"
import type { Findings, Row } from "./Row.ts"
import { throughChange } from "./throughChange.ts"

const pause = (milliseconds: number) => Effect.promise(() => setTimeout(milliseconds))

/** How long a balancer takes to notice, in milliseconds. */
const notice = 500

const bedOfPair = Effect.gen(function* () {
  const pair = yield* newPair(true)
  const proxy = yield* faultyProxy(pair.primary.url)
  return { ...pair, proxy, bed: yield* newBed(proxy) }
})

const switched = (findings: Findings) =>
  Effect.gen(function* () {
    const { bed, primary, promote, proxy, rejoin, standby } = yield* bedOfPair
    const change = Effect.gen(function* () {
      yield* primary.stop("SIGINT")
      yield* promote
      yield* rejoin
      yield* pause(notice)
      proxy.leadTo(standby.url)
    })
    yield* throughChange(findings, bed, change)
  })

const killed = (findings: Findings) =>
  Effect.gen(function* () {
    const { bed, primary, promote, proxy, standby } = yield* bedOfPair
    const change = Effect.gen(function* () {
      yield* primary.kill
      yield* pause(notice)
      yield* promote
      yield* pause(notice)
      proxy.leadTo(standby.url)
    })
    yield* throughChange(findings, bed, change)
  })

const misled = (findings: Findings) =>
  Effect.gen(function* () {
    const { bed, primary, proxy, standby } = yield* bedOfPair
    const change = Effect.gen(function* () {
      proxy.leadTo(standby.url)
      proxy.reset()
      yield* pause(3 * notice)
      proxy.leadTo(primary.url)
    })
    yield* throughChange(findings, bed, change)
  })

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
