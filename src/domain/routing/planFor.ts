import type { Credential } from "../Credential.ts"
import type { CredentialId } from "../Identifiers.ts"
import type { Provider } from "../Provider.ts"
import type { Endpoint, EndpointKind, RoutingRequest } from "./RoutingRequest.ts"
import type { Availability } from "./Health.ts"
import type { Exclusion, Plan, ProviderPlan, Section, SharedReason, Step } from "./Plan.ts"
import type { Pool, PooledCredential, Seal } from "./Pool.ts"

/** The declarations that can widen what a credential is used for, by kind of endpoint (E11, E13). */
const honours: Record<EndpointKind, { readonly region: boolean; readonly zdr: boolean }> = {
  standard: { region: true, zdr: true },
  private: { region: false, zdr: false },
  pinned: { region: false, zdr: true },
  cross_region: { region: false, zdr: true },
  video: { region: false, zdr: false }
}

const inRegion = (
  { host }: RoutingRequest,
  { kind, region }: Endpoint,
  declared: Credential["declared_region"]
): boolean => {
  if (host === "global") return true
  if (declared === null || declared === "global") return region === host
  return declared === host && (honours[kind].region || region === host)
}

const meetsZdr = ({ requires_zdr }: RoutingRequest, { kind, zdr }: Endpoint, declared: boolean | null): boolean => {
  if (!requires_zdr) return true
  if (declared === null || (declared && !honours[kind].zdr)) return zdr
  return declared
}

const isTrusted = (seal: Seal) => seal === "verified" || seal === "unverified"

/** Every reason, not just the first: removing one must not reveal another. */
const exclusionsOf = (
  request: RoutingRequest,
  endpoint: Endpoint,
  { allowsApiKey, allowsModel, allowsUser, cannotSign, credential, seal }: PooledCredential,
  availability: Availability
): ReadonlyArray<Exclusion> => {
  const { declared_region, declared_zdr, disabled } = credential
  const found: Array<Exclusion> = []
  if (!isTrusted(seal)) found.push({ reason: "seal", seal })
  if (cannotSign) found.push({ reason: "no_token" })
  if (disabled) found.push({ reason: "disabled" })
  if (!allowsApiKey(request.api_key_hash)) found.push({ reason: "api_key_not_allowed" })
  if (!allowsUser(request.user_id)) found.push({ reason: "user_not_allowed" })
  if (!allowsModel(request.model)) found.push({ reason: "model_not_allowed" })
  if (!inRegion(request, endpoint, declared_region)) {
    found.push({ reason: "region", declared: declared_region, host: request.host })
  }
  if (!meetsZdr(request, endpoint, declared_zdr)) found.push({ reason: "zdr", declared: declared_zdr })
  if (availability._tag === "Parked")
    found.push({ reason: "parked", cause: availability.cause, until: availability.until })
  return found
}

/** Why the shared endpoint is not used. Availability is no argument: health never decides about money (E4). */
const removalsOf = (request: RoutingRequest, endpoint: Endpoint, pool: Pool): ReadonlyArray<SharedReason> => {
  const found: Array<SharedReason> = []
  if (!endpoint.shared) found.push({ reason: "none_there" })
  if (!inRegion(request, endpoint, null)) found.push({ reason: "region" })
  if (!meetsZdr(request, endpoint, null)) found.push({ reason: "zdr" })
  for (const { allowsApiKey, allowsModel, allowsUser, credential, seal } of pool) {
    const { id: credential_id, disabled, is_byok_only, is_required } = credential
    if (!isTrusted(seal)) found.push({ reason: "seal", credential_id, seal })
    if (disabled || !allowsApiKey(request.api_key_hash) || !allowsUser(request.user_id)) continue
    if (is_required) found.push({ reason: "is_required", credential_id })
    if (is_byok_only && allowsModel(request.model)) found.push({ reason: "is_byok_only", credential_id })
  }
  return found
}

/** A step, and the place in its provider's plan that takes its index. */
interface Offer {
  readonly step: Step
  readonly verdict: { position: number | null }
}

const phases = ["prioritized", "shared", "fallback"] as const

type ProviderVerdict = Readonly<Record<(typeof phases)[number], ReadonlyArray<Offer>>> & { readonly plan: ProviderPlan }

const ownStep = (provider: Provider, section: Section, pooled: PooledCredential, availability: Availability): Step => {
  const { declared_region, id } = pooled.credential
  return {
    _tag: "Own",
    provider,
    section,
    credential_id: id,
    key_version: pooled.key_version,
    row: pooled.row,
    region: declared_region === "global" ? null : declared_region,
    on_trial: availability._tag === "OnTrial"
  }
}

/** A verdict on every credential of a provider, and on its shared endpoint. */
const verdictOn = (
  request: RoutingRequest,
  { endpoint, provider }: RoutingRequest["targets"][number],
  pool: Pool,
  availabilityOf: (pooled: PooledCredential) => Availability
): ProviderVerdict => {
  const offers = { prioritized: Array<Offer>(), fallback: Array<Offer>() }
  const credentials = pool.map((member) => {
    const availability = availabilityOf(member)
    const section = member.credential.is_fallback ? "fallback" : "prioritized"
    const exclusions = exclusionsOf(request, endpoint, member, availability)
    const verdict = { credential_id: member.credential.id, section, position: null, exclusions } as const
    if (exclusions.length === 0)
      offers[section].push({ step: ownStep(provider, section, member, availability), verdict })
    return verdict
  })
  const shared = { position: null, removed: removalsOf(request, endpoint, pool) }
  const sharedStep = { step: { _tag: "Shared", provider }, verdict: shared } as const
  return {
    ...offers,
    shared: shared.removed.length === 0 ? [sharedStep] : [],
    plan: { provider, credentials, shared }
  }
}

/** When the first credential is free again that only a parking keeps out: a parking is always the last reason. */
const earliestEnd = (providers: ReadonlyArray<ProviderPlan>): number | null => {
  let earliest: number | null = null
  for (const { credentials } of providers) {
    for (const { exclusions } of credentials) {
      const [only] = exclusions
      if (only?.reason !== "parked" || only.until === null) continue
      if (earliest === null || only.until < earliest) earliest = only.until
    }
  }
  return earliest
}

/** Where a search for steps goes on: the turn of a provider's phase among all, and a place in the provider's pool. */
export interface Place {
  readonly turn: number
  readonly at: number
}

export const firstPlace: Place = { turn: 0, at: 0 }

/** What steps are searched for. */
export interface Search {
  readonly request: RoutingRequest
  readonly poolOfProvider: (provider: Provider) => Pool
  readonly availabilityOf: (pooled: PooledCredential) => Availability
  /** Asked before anything else of a step: a credential of a provider, or its shared endpoint. */
  readonly isWanted: (provider: Provider, credential_id: CredentialId | undefined) => boolean
  /** Told why a credential is not used. */
  readonly excluded: (exclusions: ReadonlyArray<Exclusion>) => void
}

/** A step if one was found, and the place where that stands or the search goes on. */
export interface Found {
  readonly step: Step | undefined
  readonly place: Place
  /** Whether there may be a step all the same. */
  readonly isPaused: boolean
}

/** The provider and the phase whose turn it is. */
const turnOf = ({ strategy, targets }: RoutingRequest, turn: number) =>
  strategy === "byok_first"
    ? { target: targets[turn % targets.length], phase: phases[Math.floor(turn / targets.length)] }
    : { target: targets[Math.floor(turn / phases.length)], phase: phases[turn % phases.length] }

/** Searches for the next of the steps of `planFor`. Pauses after it has looked at so many credentials. */
export const nextStep = (
  { availabilityOf, excluded, isWanted, poolOfProvider, request }: Search,
  from: Place,
  most: number
): Found => {
  let left = most
  let { at, turn } = from
  for (; ; turn += 1, at = 0) {
    const { phase, target } = turnOf(request, turn)
    if (phase === undefined || target === undefined) return { step: undefined, place: { turn, at }, isPaused: false }
    const { endpoint, provider } = target
    const pool = poolOfProvider(provider)
    if (phase === "shared") {
      const isOffered = isWanted(provider, undefined) && removalsOf(request, endpoint, pool).length === 0
      if (isOffered) return { step: { _tag: "Shared", provider }, place: { turn, at }, isPaused: false }
      continue
    }
    for (; at < pool.length; at += 1) {
      const member = pool[at] as PooledCredential
      const { id, is_fallback } = member.credential
      if (is_fallback !== (phase === "fallback")) continue
      if (left === 0) return { step: undefined, place: { turn, at }, isPaused: true }
      left -= 1
      if (!isWanted(provider, id)) continue
      const availability = availabilityOf(member)
      const exclusions = exclusionsOf(request, endpoint, member, availability)
      if (exclusions.length > 0) excluded(exclusions)
      else return { step: ownStep(provider, phase, member, availability), place: { turn, at }, isPaused: false }
    }
  }
}

/** The credentials and shared endpoints that may serve a request, in their order, with a verdict on each. */
export const planFor = (
  request: RoutingRequest,
  poolOfProvider: (provider: Provider) => Pool,
  availabilityOf: (pooled: PooledCredential) => Availability
): Plan => {
  const verdicts = request.targets.map((target) =>
    verdictOn(request, target, poolOfProvider(target.provider), availabilityOf)
  )
  const steps: Array<Step> = []
  const take = ({ step, verdict }: Offer) => {
    verdict.position = steps.push(step) - 1
  }
  if (request.strategy === "byok_first") {
    for (const phase of phases) for (const one of verdicts) one[phase].forEach(take)
  } else {
    for (const one of verdicts) for (const phase of phases) one[phase].forEach(take)
  }
  const providers = verdicts.map(({ plan }) => plan)
  return { steps, providers, retry_at: steps.length === 0 ? earliestEnd(providers) : null }
}
