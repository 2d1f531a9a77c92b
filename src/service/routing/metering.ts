import { Effect } from "effect"
import type { RouterMeter } from "../../port/RouterMeter.ts"
import type { Planned } from "./Planned.ts"
import type { LeaseRefused, PoolsUnavailable, UnknownWorkspace } from "./RouterErrors.ts"

/** Reports what becomes of plans and leases. */
export const metering = (meter: RouterMeter) => {
  const made = ({ providers, steps }: Planned) => {
    meter.planned(steps.length === 0 ? "exhausted" : "ok")
    for (const { credentials } of providers) {
      for (const { exclusions } of credentials) for (const { reason } of exclusions) meter.excluded(reason)
    }
  }
  return {
    plan: <R>(plan: Effect.Effect<Planned, UnknownWorkspace | PoolsUnavailable, R>) =>
      plan.pipe(
        Effect.map((planned) => {
          made(planned)
          return planned
        }),
        Effect.tapError(({ _tag }) =>
          Effect.sync(() => meter.planned(_tag === "UnknownWorkspace" ? "unknown_workspace" : "unavailable"))
        )
      ),
    lease: <A, R>(lease: Effect.Effect<A, LeaseRefused | PoolsUnavailable, R>) =>
      lease.pipe(
        Effect.map((leased) => {
          meter.leased("ok")
          return leased
        }),
        Effect.tapError((error) =>
          Effect.sync(() => meter.leased(error._tag === "LeaseRefused" ? error.reason : "pools_unavailable"))
        )
      )
  }
}
