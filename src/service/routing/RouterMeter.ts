import { Effect, Exit, Option } from "effect"
import type { Provider } from "../../domain/Provider.ts"
import { cooldownCauses } from "../../domain/routing/Health.ts"
import { type Outcome, outcomeNames } from "../../domain/routing/Outcome.ts"
import type { Refusal } from "../../domain/routing/Past.ts"
import { type Exclusion, exclusionReasons } from "../../domain/routing/Plan.ts"
import { untrustedSeals } from "../../domain/routing/Pool.ts"
import type { FamilyName } from "../../runtime/families.ts"
import { makeMeter, memoize } from "../../runtime/Meter.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import type { AnotherAccount, PlanFailure } from "./RouterErrors.ts"

/** Passes the answer or the typed error of an effect to a callback. */
const onResult = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  { onFailure, onSuccess }: { readonly onSuccess: (answer: A) => void; readonly onFailure: (error: E) => void }
) =>
  onEnd(effect, (exit) => {
    if (Exit.isSuccess(exit)) onSuccess(exit.value)
    else Option.map(Exit.findErrorOption(exit), onFailure)
  })

/** The counted result of each failure: a key that may not route, or not for its request, counts as unknown. */
const planFailures = {
  UnknownApiKey: "unknown_api_key",
  ApiKeyMayNotRoute: "unknown_api_key",
  AnotherAccount: "unknown_api_key",
  UnknownWorkspace: "unknown_workspace",
  TooManyCredentials: "too_many_credentials",
  PoolsUnavailable: "unavailable"
} as const satisfies Record<(PlanFailure | AnotherAccount)["_tag"], string>

/** Makes the metrics of the router. Every series but those of outcomes begins at zero, so that rates include its first event. */
export const makeRouterMeter = Effect.map(makeMeter, ({ counter }) => {
  const makeCounters = <Value extends string>(family: FamilyName, attribute: string, values: ReadonlyArray<Value>) => {
    const counters = new Map(values.map((value) => [value, counter(family, { [attribute]: value })]))
    return (value: Value) => counters.get(value)?.()
  }
  const countPlan = makeCounters("byok.router.plans", "result", ["ok", "exhausted", ...Object.values(planFailures)])
  const leaseResults = ["ok", "on_trial", "no_token", ...untrustedSeals] as const
  const countLease = makeCounters<"ok" | Refusal>("byok.router.leases", "result", leaseResults)
  const countExclusion = makeCounters<Exclusion["reason"]>("byok.router.exclusions", "reason", exclusionReasons)
  const countOutcome = memoize((provider: Provider) =>
    memoize((tag: Outcome["_tag"]) => counter("byok.router.outcomes", { provider, outcome: outcomeNames[tag] }))
  )
  return {
    /** Counts the result of planning. */
    plan: <A, E extends PlanFailure | AnotherAccount, R>(
      plan: Effect.Effect<A, E, R>,
      isEmpty: (answer: A) => boolean
    ) =>
      onResult(plan, {
        onSuccess: (answer) => countPlan(isEmpty(answer) ? "exhausted" : "ok"),
        onFailure: ({ _tag }) => countPlan(planFailures[_tag])
      }),
    /** Counts the reasons why a plan excludes one credential. */
    countExclusions: (exclusions: ReadonlyArray<Exclusion>) => {
      for (const { reason } of exclusions) countExclusion(reason)
    },
    /** Counts the result of opening a key. */
    countLease,
    /** Counts the reported outcome of an attempt with a customer's key. A series begins with its first report. */
    countOutcome: (provider: Provider, { _tag }: Outcome) => countOutcome(provider)(_tag)(),
    /** Counts a cooldown that began or grew. */
    countParking: makeCounters("byok.router.parkings", "cause", cooldownCauses),
    /** Counts a change of the health or the last use of a key that was not stored and never will be. */
    countLost: makeCounters("byok.router.lost_changes", "record", ["health", "use"])
  }
})
