import { Iterable } from "effect"
import { type Credential, timeOrNull } from "../Credential.ts"
import type { Provider } from "../Provider.ts"
import type { Excluded, Explanation, Removed } from "./Explanation.ts"
import type { ParkedCause } from "./Health.ts"
import type { Exclusion, Plan, SharedReason } from "./Plan.ts"
import type { Pool } from "./Pool.ts"
import type { RoutingRequest } from "./RoutingRequest.ts"

const pluralized = (n: number, noun: string) => `${n} ${noun}${n === 1 ? "" : "s"}`

/** Explains why a list does not allow a request's value. */
const notListedMessage = (field: string, list: ReadonlyArray<string> | null, noun: string, value: string | null) => {
  const length = list?.length ?? 0
  if (length === 0) return `${field} is empty: it matches no ${noun}`
  return `${field} has ${pluralized(length, noun)}, ${value === null ? "and the request has none" : "not this one"}`
}

const regionMessage = (declared: Credential["declared_region"], host: string) => {
  if (declared === null || declared === "global") {
    return `it declares no region, and the endpoint is not recorded in ${host}`
  }
  return declared === host
    ? `the endpoint is not recorded in ${host}, and this kind of endpoint does not honour declared_region`
    : `it declares ${declared}, and the host is ${host}`
}

const endpointLacksZdr = "the request requires ZDR, which the endpoint does not have"

const zdrMessage = (declared: boolean | null) => {
  if (declared === null) return endpointLacksZdr
  return declared
    ? `${endpointLacksZdr}, and this kind of endpoint does not honour declared_zdr`
    : "the request requires ZDR, which it declares not to have"
}

const sealMessages = {
  altered: "its row was altered after it was sealed",
  unknown_key: "the keyring does not have the key that it is sealed with",
  unsupported: "this version does not know the format that it is sealed in"
}

const parkedMessages: Record<ParkedCause, string> = {
  rate_limited: "the upstream limited its rate",
  quota_exhausted: "its quota at the upstream is exhausted",
  forbidden: "the upstream refused the model to the key",
  rejected: "the upstream rejected the key",
  leaked: "the key is known to have leaked"
}

/** Formats a time in whole seconds, rounded up so that nobody returns a moment early. */
const timeOf = (millis: number) => `${new Date(Math.ceil(millis / 1000) * 1000).toISOString().slice(0, 19)}Z`

const parkedMessage = (cause: ParkedCause, until: number | null) => {
  const end = until === null ? "not used until it is replaced" : `tried again at ${timeOf(until)}`
  return `${parkedMessages[cause]}; it is ${end}`
}

/** Maximum number of lists that an explanation searches for a near miss, because long lists take time. */
const maxSearches = 100

const exclusionMessage = (exclusion: Exclusion, credential: Credential, request: RoutingRequest): string => {
  const { allowed_api_key_hashes, allowed_models, allowed_user_ids } = credential
  switch (exclusion.reason) {
    case "no_token":
      return "its key cannot sign a token, and no other form of it may leave the process"
    case "disabled":
      return "it is disabled"
    case "api_key_not_allowed":
      return notListedMessage("allowed_api_key_hashes", allowed_api_key_hashes, "API key", request.api_key_hash)
    case "user_not_allowed":
      return notListedMessage("allowed_user_ids", allowed_user_ids, "user", request.user_id)
    case "model_not_allowed":
      return notListedMessage("allowed_models", allowed_models, "model", request.model)
    case "region":
      return regionMessage(exclusion.declared, exclusion.host)
    case "zdr":
      return zdrMessage(exclusion.declared)
    case "seal":
      return sealMessages[exclusion.seal]
    case "parked":
      return parkedMessage(exclusion.cause, exclusion.until)
  }
}

const removalMessage = (removal: SharedReason, idWithName: (id: Credential["id"]) => string, host: string): string => {
  switch (removal.reason) {
    case "none_there":
      return "the gateway has no capacity of its own there"
    case "region":
      return `the endpoint is not recorded in ${host}`
    case "zdr":
      return endpointLacksZdr
    case "is_required":
      return `${idWithName(removal.credential_id)} forbids it for every model`
    case "is_byok_only":
      return `${idWithName(removal.credential_id)} forbids it for this model`
    case "seal":
      return `${idWithName(removal.credential_id)} may forbid it: ${sealMessages[removal.seal]}`
  }
}

/** An explanation whose verdicts are made one provider at a time, so that its maker may pause between them. */
type GradualExplanation = Omit<Explanation, "providers"> & {
  readonly providers: Iterable<Explanation["providers"][number]>
}

/** Describes a plan in words. `poolOfProvider` must return the pools that the plan was made from; otherwise throws. */
export const explanationOf = (
  request: RoutingRequest & Pick<Explanation, "workspace_id">,
  plan: Plan,
  poolOfProvider: (provider: Provider) => Pool
): GradualExplanation => {
  const credentials = new Map(
    plan.providers.flatMap(({ provider }) =>
      poolOfProvider(provider).map(({ credential }) => [credential.id, credential] as const)
    )
  )
  const credentialOf = (id: Credential["id"]) => {
    const credential = credentials.get(id)
    if (credential === undefined) throw new Error("The plan belongs to other pools")
    return credential
  }
  const idWithName = (id: Credential["id"]) => {
    const { name } = credentialOf(id)
    return name === null ? id : `${id} (${name})`
  }
  const { host, model, requires_zdr, strategy, workspace_id } = request
  const nearMissOf = makeNearMiss(model)
  let searchCount = 0
  const hintOf = (allowed: ReadonlyArray<string>) =>
    (searchCount += 1) > maxSearches ? undefined : nearMissOf(allowed)
  return {
    workspace_id,
    model,
    host,
    requires_zdr,
    strategy,
    steps: plan.steps.map((step) => {
      const { provider } = step
      if (step._tag === "Shared") return { kind: "shared", provider }
      const { credential_id, on_trial, region, section } = step
      const { label, name } = credentialOf(credential_id)
      return { kind: "own", provider, section, credential_id, name, label, region, on_trial }
    }),
    providers: Iterable.map(plan.providers, ({ provider, shared, ...verdicts }) => ({
      provider,
      credentials: verdicts.credentials.map(({ credential_id, exclusions, position, section }) => {
        const credential = credentialOf(credential_id)
        const { label, name } = credential
        const excluded = exclusions.map((exclusion): Excluded => {
          const message = exclusionMessage(exclusion, credential, request)
          if (exclusion.reason === "parked") return { ...exclusion, message, until: timeOrNull(exclusion.until) }
          const hint = exclusion.reason === "model_not_allowed" ? hintOf(credential.allowed_models ?? []) : undefined
          return { ...exclusion, message, ...(hint === undefined ? {} : { hint }) }
        })
        return { credential_id, name, label, section, position, excluded }
      }),
      shared: {
        position: shared.position,
        removed: shared.removed.map((removal): Removed => ({
          ...removal,
          message: removalMessage(removal, idWithName, host)
        }))
      }
    })),
    retry_at: timeOrNull(plan.retry_at)
  }
}

const equalWithout = (without: (slug: string) => string) => (listed: string, model: string) =>
  without(listed) === without(model)

/**
 * Differences between slugs that people overlook, smallest first: if a listed slug `resembles` the requested one, `why`
 * says what differs. Hints ignore case and outer blanks; matching itself is verbatim (E18).
 */
const differences: ReadonlyArray<{
  readonly resembles: (listed: string, model: string) => boolean
  readonly why: (listed: string, model: string) => string
}> = [
  { resembles: (listed, model) => listed === model, why: () => "case and blanks count" },
  {
    resembles: equalWithout((slug) => slug.slice(slug.indexOf("/") + 1)),
    why: (listed, model) =>
      !listed.includes("/")
        ? "a slug needs its vendor"
        : model.includes("/")
          ? "the vendor is another one"
          : "the request's model lacks its vendor"
  },
  { resembles: equalWithout((slug) => slug.replace(/:.*$/s, "")), why: () => "a variant is a model of its own" },
  {
    resembles: equalWithout((slug) => slug.slice(slug.indexOf("/") + 1).replace(/:.*$/s, "")),
    why: () => "vendor and variant count"
  },
  {
    resembles: (listed, model) => listed.split(",").some((part) => part.trim() === model),
    why: () => "a comma does not separate slugs"
  },
  {
    resembles: (listed, model) => listed.includes("*") && model.startsWith(listed.slice(0, listed.indexOf("*"))),
    why: () => "* is no wildcard"
  }
]

const normalized = (slug: string) => slug.trim().toLowerCase()

/** Makes a function that finds a model in a list close to the requested one, and says how they differ. */
export const makeNearMiss = (model: string): ((allowed: ReadonlyArray<string>) => string | undefined) => {
  const requested = normalized(model)
  return (allowed) => {
    const slugs = allowed.map(normalized)
    for (const { resembles, why } of differences) {
      const listed = allowed[slugs.findIndex((slug) => resembles(slug, requested))]
      if (listed !== undefined) return `it has ${listed}: ${why(listed, model)}`
    }
    return undefined
  }
}
