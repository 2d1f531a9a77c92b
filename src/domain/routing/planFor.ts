import type { Credential } from "../Credential.ts"
import type { Provider } from "../Provider.ts"
import type { Endpoint, EndpointKind, RoutingRequest } from "./RoutingRequest.ts"
import type { Availability } from "./Health.ts"
import type { Exclusion, OwnStep, Plan, ProviderPlan, Section, SharedReason, SharedStep, Step } from "./Plan.ts"
import type { Pool, PooledCredential, Seal, UntrustedSeal } from "./Pool.ts"

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

const isUntrusted = (seal: Seal): seal is UntrustedSeal => seal !== "verified" && seal !== "unverified"

/** Why a credential is not used. Returns every reason, so that an owner who removes one does not meet another. */
const exclusionsOf = (
  request: RoutingRequest,
  endpoint: Endpoint,
  { allowsApiKey, allowsModel, allowsUser, cannotSign, credential, seal }: PooledCredential,
  availability: Availability
): ReadonlyArray<Exclusion> => {
  const { declared_region, declared_zdr, disabled } = credential
  const exclusions: Array<Exclusion> = []
  if (isUntrusted(seal)) exclusions.push({ reason: "seal", seal })
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
    if (isUntrusted(seal)) reasons.push({ reason: "seal", credential_id, seal })
    if (disabled || !allowsApiKey(request.api_key_hash) || !allowsUser(request.user_id)) continue
    if (is_required) reasons.push({ reason: "is_required", credential_id })
    if (is_byok_only && allowsModel(request.model)) reasons.push({ reason: "is_byok_only", credential_id })
  }
  return reasons
}

/** What to try of each provider, in this order. */
const phases = ["prioritized", "shared", "fallback"] as const

/** The phases of the providers in the order of attempts. */
const turnsOf = ({ strategy, targets }: RoutingRequest) =>
  strategy === "byok_first"
    ? phases.flatMap((phase) => targets.map((target) => ({ phase, target })))
    : targets.flatMap((target) => phases.map((phase) => ({ phase, target })))

/** A request, its pools, and which of their keys may be tried now. */
export interface PlanInputs<Member extends PooledCredential = PooledCredential> {
  readonly request: RoutingRequest
  readonly poolOf: (provider: Provider) => ReadonlyArray<Member>
  readonly availabilityOf: (pooled: Member) => Availability
}

/** What a plan says of a credential or of shared capacity: a step, or every reason against it. */
export type Decision<Member> =
  | {
      readonly _tag: "Own"
      readonly provider: Provider
      readonly member: Member
      readonly section: Section
      readonly step: OwnStep | undefined
      readonly exclusions: ReadonlyArray<Exclusion>
    }
  | {
      readonly _tag: "Shared"
      readonly provider: Provider
      readonly step: SharedStep | undefined
      readonly removed: ReadonlyArray<SharedReason>
    }

const ownStep = (provider: Provider, section: Section, pooled: PooledCredential, availability: Availability) => {
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
  } as const
}

/** Decides on every credential and shared endpoint, in the order of attempts: the first step is the one to try first. */
export function* decisionsOn<Member extends PooledCredential>({
  availabilityOf,
  poolOf,
  request
}: PlanInputs<Member>): Generator<Decision<Member>, void> {
  for (const { phase, target } of turnsOf(request)) {
    const { endpoint, provider } = target
    const pool = poolOf(provider)
    if (phase === "shared") {
      const removed = removalsOf(request, endpoint, pool)
      yield { _tag: "Shared", provider, removed, step: removed.length > 0 ? undefined : { _tag: "Shared", provider } }
      continue
    }
    for (const member of pool) {
      if (member.credential.is_fallback !== (phase === "fallback")) continue
      const availability = availabilityOf(member)
      const exclusions = exclusionsOf(request, endpoint, member, availability)
      const step = exclusions.length > 0 ? undefined : ownStep(provider, phase, member, availability)
      yield { _tag: "Own", provider, member, section: phase, exclusions, step }
    }
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
export const planFor = <Member extends PooledCredential>(inputs: PlanInputs<Member>): Plan => {
  const steps: Array<Step> = []
  const credentials = new Map(inputs.request.targets.map(({ provider }) => [provider, Array<Verdict>()]))
  const shared = new Map<Provider, ProviderPlan["shared"]>()
  for (const decision of decisionsOn(inputs)) {
    const { provider, step } = decision
    const position = step === undefined ? null : steps.push(step) - 1
    if (decision._tag === "Shared") shared.set(provider, { position, removed: decision.removed })
    else {
      const { exclusions, member, section } = decision
      credentials.get(provider)?.push({ credential_id: member.credential.id, section, position, exclusions })
    }
  }
  const providers = Array.from(credentials, ([provider, verdicts]) => ({
    provider,
    credentials: verdicts,
    shared: shared.get(provider) ?? { position: null, removed: [] }
  }))
  return { steps, providers, retry_at: steps.length === 0 ? earliestEnd(providers) : null }
}

type Verdict = ProviderPlan["credentials"][number]
