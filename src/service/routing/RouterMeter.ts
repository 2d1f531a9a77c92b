import { Effect, Exit, Option } from "effect"
import { cooldownCauses } from "../../domain/routing/Health.ts"
import type { Exclusion } from "../../domain/routing/Plan.ts"
import type { FamilyName } from "../../runtime/families.ts"
import { makeMeter } from "../../runtime/Meter.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import { sealStatusByError } from "./Pools.ts"
import type {
  ApiKeyMayNotRoute,
  LeaseRefused,
  PoolsUnavailable,
  Refusal,
  UnknownApiKey,
  UnknownWorkspace
} from "./RouterErrors.ts"

const exclusionReasons = [
  "disabled",
  "api_key_not_allowed",
  "user_not_allowed",
  "no_token",
  "model_not_allowed",
  "region",
  "zdr",
  "seal",
  "parked"
] as const

/** Passes the answer or the typed error of an effect to a callback. */
const onResult = <A, E>(
  effect: Effect.Effect<A, E>,
  { onFailure, onSuccess }: { readonly onSuccess: (answer: A) => void; readonly onFailure: (error: E) => void }
) =>
  onEnd(effect, (exit) => {
    if (Exit.isSuccess(exit)) onSuccess(exit.value)
    else Option.map(Exit.findErrorOption(exit), onFailure)
  })

type PlanFailure = UnknownApiKey | ApiKeyMayNotRoute | UnknownWorkspace | PoolsUnavailable

/** The counted result of each failure: a key whose role may not route counts as unknown. */
const planFailures = {
  UnknownApiKey: "unknown_api_key",
  ApiKeyMayNotRoute: "unknown_api_key",
  UnknownWorkspace: "unknown_workspace",
  PoolsUnavailable: "unavailable"
} as const satisfies Record<PlanFailure["_tag"], string>

/** Makes the metrics of the router. Every series begins at zero, so that rates include its first event. */
export const makeRouterMeter = Effect.map(makeMeter, ({ counter }) => {
  const makeCounters = <Value extends string>(family: FamilyName, attribute: string, values: ReadonlyArray<Value>) => {
    const counters = new Map(values.map((value) => [value, counter(family, { [attribute]: value })]))
    return (value: Value) => counters.get(value)?.()
  }
  const countPlan = makeCounters("byok.router.plans", "result", ["ok", "exhausted", ...Object.values(planFailures)])
  const countLease = makeCounters<"ok" | Refusal | "pools_unavailable">("byok.router.leases", "result", [
    ...(["ok", "changed", "parked", "on_trial", "no_token", "pools_unavailable"] as const),
    ...Object.values(sealStatusByError)
  ])
  const countExclusion = makeCounters<Exclusion["reason"]>("byok.router.exclusions", "reason", exclusionReasons)
  return {
    /** Counts the result of planning. */
    plan: <A extends { readonly isEmpty: boolean }, E extends PlanFailure>(plan: Effect.Effect<A, E>) =>
      onResult(plan, {
        onSuccess: ({ isEmpty }) => countPlan(isEmpty ? "exhausted" : "ok"),
        onFailure: ({ _tag }) => countPlan(planFailures[_tag])
      }),
    /** Counts the reasons why a search excluded one credential. */
    countExclusions: (exclusions: ReadonlyArray<Exclusion>) => {
      for (const { reason } of exclusions) countExclusion(reason)
    },
    /** Counts the result of a lease. */
    lease: <A>(lease: Effect.Effect<A, LeaseRefused | PoolsUnavailable>) =>
      onResult(lease, {
        onSuccess: () => countLease("ok"),
        onFailure: (error) => countLease(error._tag === "LeaseRefused" ? error.reason : "pools_unavailable")
      }),
    /** Counts a cooldown that began or grew. */
    countParking: makeCounters("byok.router.parkings", "cause", cooldownCauses),
    /** Counts a change of the health or the last use of a key that was not stored and never will be. */
    countLost: makeCounters("byok.router.lost_changes", "record", ["health", "use"])
  }
})
