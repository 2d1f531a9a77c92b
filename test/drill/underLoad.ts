import { Effect, Scope } from "effect"
import { load, untilAcked } from "../support/database/AckChecker.ts"
import { type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"
import { type Bed, checked, newBed } from "./Bed.ts"
import { type ClusterOptions, newCluster } from "./Cluster.ts"
import { showAnswers } from "./deadline.ts"
import type { Findings } from "./Row.ts"

/** Minimum acknowledgements before and after a fault. */
export const enough = 100

/** A service under load. */
interface Loaded {
  readonly service: ServiceProcess
  /** Waits for `enough` further acknowledgements. */
  readonly acked: Effect.Effect<void>
  /** Starts another service on the same port once this one has ended. */
  readonly again: Effect.Effect<ServiceProcess>
}

interface Options {
  readonly findings: Findings
  readonly bed: Bed
  readonly clients?: number
  /** Settings of the service. */
  readonly other?: Record<string, string>
}

/** A new server that runs, and an account on it. */
export const newClusterBed = Effect.fnUntraced(function* (
  options: ClusterOptions = {},
  settings: Record<string, string> = {}
) {
  const cluster = yield* newCluster(options)
  yield* cluster.start(settings)
  return { cluster, bed: yield* newBed(cluster) }
})

/** Starts the service, puts a load on it, and provokes a fault; afterwards load and service are stopped in this order. */
export const underLoad = <E>(
  { bed: { key, settings }, findings: { ledger }, other = {}, ...options }: Options,
  fault: (loaded: Loaded) => Effect.fn.Return<unknown, E, Scope.Scope>
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const again = Scope.provide(startService({ ...settings, ...other }), yield* Effect.scope)
      const service = yield* again
      const during = Effect.gen(function* () {
        yield* Effect.asVoid(load(service.url, key, ledger, { pause: 5, ...options }))
        const acked = Effect.suspend(() => untilAcked(ledger, enough))
        yield* acked
        yield* Effect.fnUntraced(fault)({ service, again, acked })
      })
      yield* Effect.scoped(during)
    })
  )

/** Judges the answers and the stored credentials. On request, requires that some requests failed. */
export const judge = Effect.fnUntraced(function* (
  findings: Findings,
  bed: Bed,
  { fails = false, ...other }: { readonly fails?: boolean; readonly DATABASE_URL?: string } = {}
) {
  showAnswers(findings)
  if (fails) findings.expect(findings.ledger.unknown.length > 0, "no create has failed")
  findings.judge(yield* checked(bed, findings.ledger, other))
})
