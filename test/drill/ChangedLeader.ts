import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { type FaultyProxy, faultyProxy } from "../faults/FaultyProxy.ts"
import { selfSignedCertificate } from "../support/keys/selfSignedCertificate.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { newBed } from "./Bed.ts"
import { pause } from "./deadline.ts"
import { newPair, type Pair } from "./Pair.ts"
import { newPatroni, type Patroni, type Tls } from "./Patroni.ts"
import type { Findings, Row } from "./Row.ts"
import { throughChange } from "./throughChange.ts"

/** How long a load balancer takes to notice a new leader, in milliseconds. */
const notice = 500

interface Balanced extends Pair {
  /** Replaces a load balancer; leads to the primary at first. */
  readonly proxy: FaultyProxy
}

/** Provokes a change of leader, with a database that is reached over TLS or not. */
type Change = (tls: Tls | undefined) => (findings: Findings) => Effect.Effect<void, unknown, Scope.Scope>

/** The setting that makes the service trust the certificate. */
const trusting = (tls: Tls | undefined) =>
  Effect.map(temporaryDirectory, (directory): Record<string, string> => {
    if (tls === undefined) return {}
    const file = join(directory, "ca.pem")
    writeFileSync(file, tls.certificate)
    return { DATABASE_CA_FILE: file }
  })

const byProxy =
  (change: (balanced: Balanced) => Effect.Effect<void>): Change =>
  (tls) =>
  (findings) =>
    Effect.gen(function* () {
      const pair = yield* newPair(true)
      const proxy = yield* faultyProxy(pair.primary.url, tls)
      yield* throughChange(findings, yield* newBed(proxy, yield* trusting(tls)), change({ ...pair, proxy }))
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
const byPatroni =
  (change: (patroni: Patroni) => Effect.Effect<void>): Change =>
  (tls) =>
  (findings) =>
    Effect.gen(function* () {
      const patroni = yield* newPatroni(tls)
      const bed = yield* newBed(patroni, { DATABASE_POOLER: "true", ...(yield* trusting(tls)) })
      yield* throughChange(findings, bed, change(patroni))
    })

const changes: ReadonlyArray<readonly [fault: string, change: Change]> = [
  ["primary and synchronous standby change places, the balancer notices late", switched],
  ["primary killed, synchronous standby promoted, the balancer notices late", killed],
  ["every connection led to the read-only standby for 1.5 s", misled],
  ["Patroni, HAProxy and PgBouncer: switchover", byPatroni(({ switchover }) => switchover)],
  ["Patroni, HAProxy and PgBouncer: the leader's postmaster killed", byPatroni(({ killPostmaster }) => killPostmaster)]
]

export const rows: ReadonlyArray<Row> = changes.flatMap(([fault, change]) => [
  { id: "R16", fault, run: change(undefined) },
  { id: "R16", fault: `${fault}, over TLS`, run: (findings) => change(selfSignedCertificate("127.0.0.1"))(findings) }
])
