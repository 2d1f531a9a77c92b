import { Cause, Effect, Exit, Option } from "effect"
import { cooldownCauses } from "../../domain/routing/Health.ts"
import type { Exclusion } from "../../domain/routing/Plan.ts"
import type { FamilyName } from "../../runtime/families.ts"
import { makeMeter } from "../../runtime/Meter.ts"
import type {
  ApiKeyMayNotRoute,
  LeaseRefused,
  PoolsUnavailable,
  Refusal,
  UnknownApiKey,
  UnknownWorkspace
} from "./RouterErrors.ts"

const leaseResults = [
  "ok",
  "changed",
  "parked",
  "on_trial",
  "no_token",
  "altered",
  "unknown_key",
  "unsupported",
  "unavailable",
  "pools_unavailable"
] as const
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

type PlanFailure = UnknownApiKey | ApiKeyMayNotRoute | UnknownWorkspace | PoolsUnavailable

const planFailures = {
  UnknownApiKey: "unknown_api_key",
  ApiKeyMayNotRoute: "unknown_api_key",
  UnknownWorkspace: "unknown_workspace",
  PoolsUnavailable: "unavailable"
} as const satisfies Record<PlanFailure["_tag"], string>

/** Counts results of plans and leases. Creates every series at zero, so that rates see its first event. */
export const makeRouterMeter = Effect.map(makeMeter, ({ counter }) => {
  const eachOf = <Value extends string>(family: FamilyName, attribute: string, values: ReadonlyArray<Value>) => {
    const count = new Map(values.map((value) => [value, counter(family, { [attribute]: value })]))
    return (value: Value) => count.get(value)?.()
  }
  const planned = eachOf("byok.router.plans", "result", [
    ...["ok", "exhausted", "unknown_workspace", "unknown_api_key", "unavailable"]
  ])
  const leased = eachOf<"ok" | Refusal | "pools_unavailable">("byok.router.leases", "result", leaseResults)
  const excluded = eachOf<Exclusion["reason"]>("byok.router.exclusions", "reason", exclusionReasons)
  const counted = <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    count: (value: A) => void,
    countFailure: (error: E) => void
  ) =>
    Effect.onExit(effect, (exit) =>
      Effect.sync(() => {
        if (Exit.isSuccess(exit)) return count(exit.value)
        const error = Cause.findErrorOption(exit.cause)
        if (Option.isSome(error)) countFailure(error.value)
      })
    )
  return {
    plan: <A extends { readonly isEmpty: boolean }, E extends PlanFailure, R>(plan: Effect.Effect<A, E, R>) =>
      counted(
        plan,
        ({ isEmpty }) => planned(isEmpty ? "exhausted" : "ok"),
        ({ _tag }) => planned(planFailures[_tag])
      ),
    /** Counts the exclusions of one credential in a search. */
    excluded: (exclusions: ReadonlyArray<Exclusion>) => {
      for (const { reason } of exclusions) excluded(reason)
    },
    lease: <A, R>(lease: Effect.Effect<A, LeaseRefused | PoolsUnavailable, R>) =>
      counted(
        lease,
        () => leased("ok"),
        (error) => leased(error._tag === "LeaseRefused" ? error.reason : "pools_unavailable")
      ),
    /** Counts a cooldown that began or grew. */
    parked: eachOf("byok.router.parkings", "cause", cooldownCauses)
  }
})
