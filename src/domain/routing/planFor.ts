import type { Credential } from "../Credential.ts"
import type { CredentialId } from "../Identifiers.ts"
import type { Provider } from "../Provider.ts"
import type { Endpoint, EndpointKind, RoutingRequest } from "./RoutingRequest.ts"
import type { Availability } from "./Health.ts"
import type { Exclusion, Plan, ProviderPlan, Section, SharedReason, Step } from "./Plan.ts"
import type { Pool, PooledCredential, Seal } from "./Pool.ts"

/** Which declarations of a credential each kind of endpoint honours (E11, E13). */
const honoursDeclared: Record<EndpointKind, { readonly region: boolean; readonly zdr: boolean }> = {
  standard: { region: true, zdr: true },
  private: { region: false, zdr: false },
  pinned: { region: false, zdr: true },
  cross_region: { region: false, zdr: true },
  video: { region: false, zdr: false }
}

/**
 * Whether an endpoint is in the region of the request's host, for a credential that may declare a region. The
 * endpoint's recorded region decides if the credential declares none (null or global), as for shared capacity. A
 * declared region must be the host's, and so must the recorded one if the endpoint's kind does not honour declared
 * regions.
 */
const inRegion = (
  { host }: RoutingRequest,
  { kind, region }: Endpoint,
  declared: Credential["declared_region"]
): boolean => {
  if (host === "global") return true
  if (declared === null || declared === "global") return region === host
  return declared === host && (honoursDeclared[kind].region || region === host)
}

/**
 * Whether a request that may require ZDR can use an endpoint with a credential. The endpoint's record decides if the
 * credential declares nothing (null), or declares ZDR and the endpoint's kind does not honour that. A declared lack of
 * ZDR always counts.
 */
const meetsZdr = ({ requires_zdr }: RoutingRequest, { kind, zdr }: Endpoint, declared: boolean | null): boolean => {
  if (!requires_zdr) return true
  if (declared === null || (declared && !honoursDeclared[kind].zdr)) return zdr
  return declared
}

const isTrusted = (seal: Seal) => seal === "verified" || seal === "unverified"

/** Why a credential is not used. Returns every reason, so that an owner who removes one does not meet another. */
const exclusionsOf = (
  request: RoutingRequest,
  endpoint: Endpoint,
  { allowsApiKey, allowsModel, allowsUser, cannotSign, credential, seal }: PooledCredential,
  availability: Availability
): ReadonlyArray<Exclusion> => {
  const { declared_region, declared_zdr, disabled } = credential
  const exclusions: Array<Exclusion> = []
  if (!isTrusted(seal)) exclusions.push({ reason: "seal", seal })
  if (cannotSign) exclusions.push({ reason: "no_token" })
  if (disabled) exclusions.push({ reason: "disabled" })
  if (!allowsApiKey(request.api_key_hash)) exclusions.push({ reason: "api_key_not_allowed" })
  if (!allowsUser(request.user_id)) exclusions.push({ reason: "user_not_allowed" })
  if (!allowsModel(request.model)) exclusions.push({ reason: "model_not_allowed" })
  if (!inRegion(request, endpoint, declared_region)) {
    exclusions.push({ reason: "region", declared: declared_region, host: request.host })
  }
  if (!meetsZdr(request, endpoint, declared_zdr)) exclusions.push({ reason: "zdr", declared: declared_zdr })
  if (availability._tag === "Parked")
    exclusions.push({ reason: "parked", cause: availability.cause, until: availability.until })
  return exclusions
}

/** Why the shared endpoint is not used. Ignores availability: a parked key must not make the operator pay (E4). */
const removalsOf = (request: RoutingRequest, endpoint: Endpoint, pool: Pool): ReadonlyArray<SharedReason> => {
  const reasons: Array<SharedReason> = []
  if (!endpoint.shared) reasons.push({ reason: "none_there" })
  if (!inRegion(request, endpoint, null)) reasons.push({ reason: "region" })
  if (!meetsZdr(request, endpoint, null)) reasons.push({ reason: "zdr" })
  for (const { allowsApiKey, allowsModel, allowsUser, credential, seal } of pool) {
    const { id: credential_id, disabled, is_byok_only, is_required } = credential
    if (!isTrusted(seal)) reasons.push({ reason: "seal", credential_id, seal })
    if (disabled || !allowsApiKey(request.api_key_hash) || !allowsUser(request.user_id)) continue
    if (is_required) reasons.push({ reason: "is_required", credential_id })
    if (is_byok_only && allowsModel(request.model)) reasons.push({ reason: "is_byok_only", credential_id })
  }
  return reasons
}

/** A step that the plan will have, and the verdict to fill with its index there. */
interface Offer {
  readonly step: Step
  readonly verdict: { position: number | null }
}

/** What to try of each provider, in this order. */
const phases = ["prioritized", "shared", "fallback"] as const

/** What a provider offers in each phase, and its verdicts. */
type ProviderOffers = Readonly<Record<(typeof phases)[number], ReadonlyArray<Offer>>> & { readonly plan: ProviderPlan }

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

/** Decides on every credential of a provider and on its shared endpoint. */
const offersOf = (
  request: RoutingRequest,
  { endpoint, provider }: RoutingRequest["targets"][number],
  pool: Pool,
  availabilityOf: (pooled: PooledCredential) => Availability
): ProviderOffers => {
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

/** Earliest end of a parking that is a credential's only exclusion. */
const earliestEnd = (providers: ReadonlyArray<ProviderPlan>): number | null => {
  let earliest: number | null = null
  for (const { credentials } of providers) {
    for (const { exclusions } of credentials) {
      // Parking is always the last exclusion, so it is the only one if it is the first.
      const [first] = exclusions
      if (first?.reason !== "parked" || first.until === null) continue
      if (earliest === null || first.until < earliest) earliest = first.until
    }
  }
  return earliest
}

/** Plans a request: which credentials and shared endpoints may serve it, in order, and why the others may not. */
export const planFor = (
  request: RoutingRequest,
  poolOfProvider: (provider: Provider) => Pool,
  availabilityOf: (pooled: PooledCredential) => Availability
): Plan => {
  const offersByTarget = request.targets.map((target) =>
    offersOf(request, target, poolOfProvider(target.provider), availabilityOf)
  )
  const steps: Array<Step> = []
  const addStep = ({ step, verdict }: Offer) => {
    verdict.position = steps.push(step) - 1
  }
  if (request.strategy === "byok_first") {
    for (const phase of phases) for (const offers of offersByTarget) offers[phase].forEach(addStep)
  } else {
    for (const offers of offersByTarget) for (const phase of phases) offers[phase].forEach(addStep)
  }
  const providers = offersByTarget.map(({ plan }) => plan)
  return { steps, providers, retry_at: steps.length === 0 ? earliestEnd(providers) : null }
}

/** Where a search continues: the turn (one phase of one provider) and the index in that provider's pool. */
export interface SearchPosition {
  readonly turn: number
  readonly index: number
}

export const searchStart: SearchPosition = { turn: 0, index: 0 }

/** The arguments of `planFor`, and what a search looks for and reports. */
export interface Search {
  readonly request: RoutingRequest
  readonly poolOfProvider: (provider: Provider) => Pool
  readonly availabilityOf: (pooled: PooledCredential) => Availability
  /** Whether a step with a credential of a provider, or on its shared endpoint (undefined), is wanted. */
  readonly isWanted: (provider: Provider, credential_id: CredentialId | undefined) => boolean
  /** Called for each wanted credential that is excluded, with the reasons. */
  readonly onExcluded: (exclusions: ReadonlyArray<Exclusion>) => void
}

/** The next step and its position. Without a step, `position` is where a paused search continues. */
export interface SearchResult {
  readonly step: Step | undefined
  readonly position: SearchPosition
  /** Whether the search stopped at its limit, so that a step may follow. */
  readonly isPaused: boolean
}

/** The target and phase of a turn; one of them is undefined after the last turn. */
const turnOf = ({ strategy, targets }: RoutingRequest, turn: number) =>
  strategy === "byok_first"
    ? { target: targets[turn % targets.length], phase: phases[Math.floor(turn / targets.length)] }
    : { target: targets[Math.floor(turn / phases.length)], phase: phases[turn % phases.length] }

/** Finds the next wanted step of the plan from a position on. Pauses after `maxExamined` credentials, in any phase. */
export const nextStep = (
  { availabilityOf, onExcluded, isWanted, poolOfProvider, request }: Search,
  from: SearchPosition,
  maxExamined: number
): SearchResult => {
  let remaining = maxExamined
  let { index, turn } = from
  for (; ; turn += 1, index = 0) {
    const { phase, target } = turnOf(request, turn)
    if (phase === undefined || target === undefined)
      return { step: undefined, position: { turn, index }, isPaused: false }
    const { endpoint, provider } = target
    const pool = poolOfProvider(provider)
    if (phase === "shared") {
      if (!isWanted(provider, undefined)) continue
      const examined = pool.slice(index, index + remaining)
      remaining -= examined.length
      if (removalsOf(request, endpoint, examined).length > 0) continue
      index += examined.length
      if (index < pool.length) return { step: undefined, position: { turn, index }, isPaused: true }
      return { step: { _tag: "Shared", provider }, position: { turn, index: 0 }, isPaused: false }
    }
    for (; index < pool.length; index += 1) {
      if (remaining === 0) return { step: undefined, position: { turn, index }, isPaused: true }
      remaining -= 1
      const member = pool[index] as PooledCredential
      const { id, is_fallback } = member.credential
      if (is_fallback !== (phase === "fallback") || !isWanted(provider, id)) continue
      const availability = availabilityOf(member)
      const exclusions = exclusionsOf(request, endpoint, member, availability)
      if (exclusions.length > 0) onExcluded(exclusions)
      else return { step: ownStep(provider, phase, member, availability), position: { turn, index }, isPaused: false }
    }
  }
}
