import type { CredentialId } from "../Identifiers.ts"
import type { Provider } from "../Provider.ts"
import type { Outcome } from "./Outcome.ts"
import type { Step } from "./Plan.ts"
import type { UntrustedSeal } from "./Pool.ts"

/**
 * Why the key of a step was not opened. `on_trial`: another request is trying it. `no_token`: only signed tokens may
 * leave the process, and the key cannot sign any.
 */
export type Refusal = "on_trial" | "no_token" | UntrustedSeal

/** A step of a request that was tried; `credential_id` is null for shared capacity. */
export interface Tried {
  readonly provider: Provider
  readonly credential_id: CredentialId | null
  readonly result: Outcome["_tag"] | Refusal
}

/** What a request has tried, oldest first. */
export type Past = ReadonlyArray<Tried>

/**
 * What each result means for the rest of its request. `ends`: its answer is returned. `fails`: the provider has failed;
 * after two failures in a row its other steps are skipped. `withholds`: the key may forbid shared capacity, so its
 * failure must not spend the operator's money. `next`: nothing beyond its step.
 */
const consequences: Record<Tried["result"], "ends" | "fails" | "withholds" | "next"> = {
  Succeeded: "ends",
  RequestRefused: "ends",
  Abandoned: "ends",
  UpstreamFailed: "fails",
  RateLimited: "next",
  QuotaExhausted: "next",
  Rejected: "next",
  Forbidden: "next",
  NotServed: "next",
  on_trial: "next",
  no_token: "withholds",
  altered: "withholds",
  unknown_key: "withholds",
  unsupported: "withholds"
}

/** Failures of a provider in a row after which its other steps are skipped. */
const maxFailures = 2

/** Whether a result ends its request. */
export const isFinal = (result: Tried["result"]): boolean => consequences[result] === "ends"

/** Names a step by its credential, or by the provider of its shared capacity. */
const nameOf = ({ credential_id, provider }: Pick<Tried, "credential_id" | "provider">) =>
  credential_id ?? `${provider} shared`

/** The credential of a step; null for shared capacity. */
export const credentialOf = (step: Step): CredentialId | null => (step._tag === "Own" ? step.credential_id : null)

/**
 * What an outcome means after the past of its request: the second bare 403 of a provider says nothing about its key,
 * because it is rather the request that the provider forbids.
 */
export const outcomeAfter = (past: Past, provider: Provider, outcome: Outcome): Outcome =>
  outcome._tag === "Forbidden" && past.some((one) => one.provider === provider && one.result === "Forbidden")
    ? { _tag: "NotServed" }
    : outcome

/** Folds the past of a request into whether a step may still be tried: none after a final result, and none twice. */
export const remainingAfter = (past: Past): ((step: Step) => boolean) => {
  const tried = new Set<string>()
  const failures = new Map<Provider, number>()
  const withheld = new Set<Provider>()
  let isOver = false
  for (const one of past) {
    const consequence = consequences[one.result]
    tried.add(nameOf(one))
    if (consequence === "ends") isOver = true
    else if (consequence === "withholds") withheld.add(one.provider)
    else if (consequence === "fails") failures.set(one.provider, (failures.get(one.provider) ?? 0) + 1)
    else if (one.result !== "on_trial") failures.delete(one.provider)
  }
  return (step) =>
    !isOver &&
    (failures.get(step.provider) ?? 0) < maxFailures &&
    (step._tag === "Own" || !withheld.has(step.provider)) &&
    !tried.has(nameOf({ provider: step.provider, credential_id: credentialOf(step) }))
}
