import { Effect, Scope } from "effect"
import { type Ledger, load, untilAcked } from "../support/database/AckChecker.ts"
import { type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"
import type { Bed } from "./Bed.ts"

/** How many acknowledgements must come before a fault, and after it. */
export const enough = 100

/** A service under load. */
export interface Loaded {
  readonly service: ServiceProcess
  /** Starts another on the same port once this one has ended. */
  readonly again: Effect.Effect<ServiceProcess>
}

/** Starts the service, puts a load on it, and provokes a fault; afterwards load and service are stopped in this order. */
export const underLoad = <E>(
  { key, settings }: Bed,
  ledger: Ledger,
  fault: (loaded: Loaded) => Effect.Effect<unknown, E, Scope.Scope>,
  { other = {}, ...options }: { clients?: number; pause?: number; other?: Record<string, string> } = {}
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const again = Scope.provide(startService({ ...settings, ...other }), yield* Effect.scope)
      const service = yield* again
      const during = Effect.gen(function* () {
        yield* Effect.asVoid(load(service.url, key, ledger, { pause: 5, ...options }))
        yield* untilAcked(ledger, enough)
        yield* fault({ service, again })
      })
      yield* Effect.scoped(during)
    })
  )
